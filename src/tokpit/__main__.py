"""The `tokpit` console script."""

from __future__ import annotations


def main() -> None:
    """Run the command line; see `tokpit --help`."""
    from tokpit.cli.main import run

    run()


if __name__ == "__main__":
    main()
