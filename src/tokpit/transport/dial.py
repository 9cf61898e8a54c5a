"""One attempt to reach a host: ssh_config, jump hosts, keys, host keys, passwords. Imports asyncssh: import it late.

Every hop is opened here, so that each has its host key checked, its timeouts and its keepalive; asyncssh's own
ProxyJump would open them with defaults.
"""

from __future__ import annotations

import asyncio
import logging
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import asyncssh
from asyncssh.config import ConfigParseError

from tokpit.config.inventory import parse_destination
from tokpit.errors import AuthFailed, ConnectFailed, HostError, UsageError
from tokpit.transport.base import HostSpec, Prompt
from tokpit.transport.hostkeys import KnownHosts
from tokpit.transport.login import Answers, Client, Ends, Hop
from tokpit.transport.mapping import translate

CONNECT_TIMEOUT_S = 10.0
LOGIN_TIMEOUT_S = 10.0
ANSWER_TIMEOUT_S = 180.0
"""Login timeout while a person types."""
KEEPALIVE_S = 4.0
KEEPALIVE_MISSES = 3
"""A link on which nothing comes any more is given up after KEEPALIVE_S times this, 12 s."""
MAX_DIALS = 8
"""sshd drops logins at random above MaxStartups (10 by default), also across hosts behind one jump host."""
MAX_HOPS = 8
PASSPHRASE_TRIES = 3

_DEFAULT_KEYS = ("id_ed25519", "id_ecdsa", "id_rsa", "id_ed25519_sk", "id_ecdsa_sk")

# Without a handler of its own, Python prints the library's warnings over the screen.
logging.getLogger("asyncssh").addHandler(logging.NullHandler())


_throttles: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = weakref.WeakKeyDictionary()


def _throttle() -> asyncio.Semaphore:
    return _throttles.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(MAX_DIALS))


class Dialer:
    """Opens connections to one host, remembering keys and answers between attempts."""

    def __init__(
        self,
        spec: HostSpec,
        *,
        prompt: Prompt | None = None,
        config_files: Sequence[Path] | None = None,
        keepalive_s: float = KEEPALIVE_S,
    ) -> None:
        self._spec = spec
        self._prompt = prompt
        self._files = config_files
        self._keepalive_s = keepalive_s
        self._known: dict[Hop, KnownHosts] = {}
        self._answers: dict[Hop, Answers] = {}
        self._unlocked: dict[Path, list[Any]] = {}
        self._ends: Ends = weakref.WeakKeyDictionary()

    def why_ended(self, connection: asyncssh.SSHClientConnection) -> Exception | None:
        """What ended an established connection; None: a plain close."""
        return self._ends.get(connection)

    async def dial(self, *, ask: bool) -> list[asyncssh.SSHClientConnection]:
        """Connections hop by hop; the last is the host. `ask`: questions may go to the user.

        Raises UnknownHost, ConnectFailed, AuthFailed, HostKeyUnknown, HostKeyChanged, LinkLost.
        """
        spec = self._spec
        hop = Hop(spec.address or spec.name, spec.user, spec.port, spec.identity_files, spec.known_hosts)
        chain: list[asyncssh.SSHClientConnection] = []
        try:
            await self._reach(hop, spec.jump, chain, ask=ask, depth=0)
        except BaseException:
            for connection in reversed(chain):
                connection.abort()
            raise
        return chain

    async def _reach(
        self, hop: Hop, jump: str | None, chain: list[asyncssh.SSHClientConnection], *, ask: bool, depth: int
    ) -> None:
        if depth > MAX_HOPS:
            raise ConnectFailed(f"{self._spec.name}: more than {MAX_HOPS} jump hosts, or a circle of them.")
        options = await self._resolve(hop)
        if not chain:
            via = jump if jump is not None else options.tunnel
            if isinstance(via, str) and via.lower() != "none":
                for word in via.split(","):
                    try:
                        user, address, port = parse_destination(word)
                    except UsageError as error:
                        raise ConnectFailed(f"{self._spec.name}: the jump host {word!r} is not readable.") from error
                    # Files named for the host itself serve its hops too, as they do on an `ssh -i -J` line.
                    step = Hop(address, user, port, self._spec.identity_files, self._spec.known_hosts)
                    await self._reach(step, None, chain, ask=ask, depth=depth + 1)
        chain.append(await self._login(hop, options, chain[-1] if chain else None, ask=ask))

    async def _resolve(self, hop: Hop) -> asyncssh.SSHClientConnectionOptions:
        """What ssh_config says for a hop."""
        try:
            options: asyncssh.SSHClientConnectionOptions = await asyncssh.SSHClientConnectionOptions.construct(
                None, client_keys=None, known_hosts=b"", **self._target(hop)
            )
            return options
        except ConfigParseError as error:
            raise ConnectFailed(f"ssh_config cannot be read: {error}.", hint="Correct that line.") from error
        except (ValueError, UnicodeError) as error:
            raise ConnectFailed(f"{self._spec.name}: an SSH option is off: {error}.") from error

    def _target(self, hop: Hop) -> dict[str, Any]:
        files = self._files if self._files is not None else ssh_config_files()
        target: dict[str, Any] = {"config": [str(path) for path in files], "host": hop.address}
        if hop.user is not None:
            target["username"] = hop.user
        if hop.port is not None:
            target["port"] = hop.port
        return target

    async def _login(
        self,
        hop: Hop,
        options: asyncssh.SSHClientConnectionOptions,
        tunnel: asyncssh.SSHClientConnection | None,
        *,
        ask: bool,
    ) -> asyncssh.SSHClientConnection:
        known = self._known.setdefault(hop, KnownHosts(known_hosts_files(hop, options)))
        answers = self._answers.setdefault(hop, Answers(self._prompt))
        name = self._spec.name if hop.address == (self._spec.address or self._spec.name) else hop.address
        recorded = options.host_key_alias or options.host
        keys, locked = await asyncio.to_thread(self._keys, hop, options)
        kinds = None
        if not options.config.get("HostKeyAlgorithms"):
            kinds = known.kinds(recorded, options.port)
        ask = ask and self._prompt is not None
        live = False
        for _ in range(4):
            answers.begin(live=live)
            known.offered = None
            try:
                return await self._connect(hop, options, known, answers, keys, tunnel, kinds=kinds, live=live)
            except asyncssh.HostKeyNotVerifiable:
                error = known.error(name, recorded, options.port)
                if not ask or not await self._agreed(error, known, recorded, options.port):
                    raise error from None
            except asyncssh.PermissionDenied as failure:
                if live or not ask or not (locked or answers.wanted):
                    raise self._denied(failure, name, locked) from failure
                keys = keys + await self._unlock(locked)
                locked, live = [], True
            except (OSError, asyncssh.Error, asyncio.IncompleteReadError, TimeoutError, ValueError) as failure:
                raise translate(failure, name) from failure
        raise AuthFailed(f"{name}: the login did not come to an end.")

    async def _connect(
        self,
        hop: Hop,
        options: asyncssh.SSHClientConnectionOptions,
        known: KnownHosts,
        answers: Answers,
        keys: list[Any],
        tunnel: asyncssh.SSHClientConnection | None,
        *,
        kinds: str | None,
        live: bool,
    ) -> asyncssh.SSHClientConnection:
        kwargs: dict[str, Any] = {
            "tunnel": tunnel,
            "client_factory": lambda: Client(known, hop, answers, self._ends),
            "known_hosts": known.lookup,
            "connect_timeout": ANSWER_TIMEOUT_S if live else CONNECT_TIMEOUT_S,
            "login_timeout": ANSWER_TIMEOUT_S if live else LOGIN_TIMEOUT_S,
            "keepalive_interval": self._keepalive_s,
            # The library gives up one interval after this many unanswered ones.
            "keepalive_count_max": KEEPALIVE_MISSES - 1,
            # ssh_config may ask for a command or a terminal, meant for people: both would spoil our channels.
            "command": None,
            "request_pty": False,
            "agent_forwarding": False,
            "x11_forwarding": False,
            "encoding": None,
            # Never left to the library, which would stop at a file that ssh_config names but that is not there.
            "client_keys": keys,
        }
        if kinds is not None:
            kwargs["server_host_key_algs"] = kinds
        if options.config.get("IdentitiesOnly"):
            named = await asyncio.to_thread(_public_halves, self._paths(hop, options))
            kwargs.update({"agent_identities": named} if named else {"agent_path": None})
        async with _throttle():
            connection: asyncssh.SSHClientConnection = await asyncssh.connect(**self._target(hop), **kwargs)
        return connection

    async def _agreed(self, error: HostError, known: KnownHosts, host: str, port: int) -> bool:
        fingerprint = getattr(error, "fingerprint", None)
        if fingerprint is None or known.offered is None or self._prompt is None:
            return False
        question = f"The host {host} (port {port}) is not known yet. Its key is {fingerprint}. Trust it?"
        answer = await self._prompt("hostkey", question)
        if answer is None or answer.strip().lower() in ("", "n", "no"):
            return False
        await asyncio.to_thread(known.agree, host, port)
        return True

    def _paths(self, hop: Hop, options: asyncssh.SSHClientConnectionOptions) -> list[Path]:
        """The identity files to try: those of the host's entry, of ssh_config, or the usual ones."""
        if hop.identity_files:
            return [Path(name).expanduser() for name in hop.identity_files]
        named = options.config.get("IdentityFile")
        if isinstance(named, list) and named:
            return [Path(str(name)).expanduser() for name in named]
        return [Path("~/.ssh", name).expanduser() for name in _DEFAULT_KEYS]

    def _keys(self, hop: Hop, options: asyncssh.SSHClientConnectionOptions) -> tuple[list[Any], list[Path]]:
        """Key pairs that can be used at once, and the files that need a passphrase."""
        paths = self._paths(hop, options)
        for path in paths if hop.identity_files else ():
            if not path.exists():
                raise AuthFailed(f"{self._spec.name}: the identity file {path} does not exist.")
        keys: list[Any] = []
        locked: list[Path] = []
        for path in paths:
            if path in self._unlocked:
                keys.extend(self._unlocked[path])
                continue
            try:
                keys.extend(asyncssh.load_keypairs(str(path)))
            except OSError:
                continue
            except (asyncssh.KeyEncryptionError, asyncssh.KeyImportError) as error:
                if "passphrase" in str(error).lower():
                    locked.append(path)
                elif hop.identity_files:
                    raise translate(error, self._spec.name) from error
        return keys, locked

    async def _unlock(self, locked: Sequence[Path]) -> list[Any]:
        """Key pairs of protected files, with the passphrases the user gives."""
        found: list[Any] = []
        for path in locked:
            for attempt in range(PASSPHRASE_TRIES):
                again = " (wrong, once more)" if attempt else ""
                assert self._prompt is not None
                phrase = await self._prompt("passphrase", f"Passphrase of {path}{again}")
                if phrase is None:
                    break
                try:
                    pairs = await asyncio.to_thread(asyncssh.load_keypairs, str(path), phrase)
                except (asyncssh.KeyEncryptionError, asyncssh.KeyImportError, OSError):
                    continue
                self._unlocked[path] = list(pairs)
                found.extend(pairs)
                break
        return found

    def _denied(self, failure: BaseException, name: str, locked: Sequence[Path]) -> HostError:
        error = translate(failure, name)
        if locked:
            error.hint = f"The key {locked[0]} needs its passphrase: load it with ssh-add."
        return error


def _public_halves(paths: Sequence[Path]) -> list[bytes]:
    """The public keys of identity files, by which an agent's keys are chosen."""
    found = []
    for path in paths:
        for name in (f"{path}.pub", str(path)):
            try:
                found.append(asyncssh.read_public_key(name).public_data)
            except (OSError, asyncssh.KeyImportError):
                continue
            break
    return found


def ssh_config_files() -> list[Path]:
    """The user's and the system's ssh_config, where they can be read."""
    found = []
    for path in (Path("~/.ssh/config").expanduser(), Path("/etc/ssh/ssh_config")):
        try:
            with path.open("rb"):
                found.append(path)
        except OSError:
            continue
    return found


def known_hosts_files(hop: Hop, options: asyncssh.SSHClientConnectionOptions) -> list[Path]:
    """The files to look a hop's key up in; the first is written to. Never empty: no file means no key is known."""
    if hop.known_hosts is not None:
        return [Path(hop.known_hosts).expanduser()]
    user = options.config.get("UserKnownHostsFile")
    system = options.config.get("GlobalKnownHostsFile")
    users = [str(name) for name in user] if isinstance(user, list) else ["~/.ssh/known_hosts", "~/.ssh/known_hosts2"]
    systems = [str(name) for name in system] if isinstance(system, list) else ["/etc/ssh/ssh_known_hosts"]
    return [Path(name).expanduser() for name in (*users, *systems)]
