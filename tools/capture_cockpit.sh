#!/bin/sh
# The cockpit of the demo as text, from a real terminal: tools/capture_cockpit.sh [TOKPIT] >docs/pictures/cockpit.txt
set -eu
tokpit=${1:-.venv/bin/tokpit}
tmux -L tokpit-capture new-session -d -x 120 -y 36 "$tokpit demo"
trap 'tmux -L tokpit-capture kill-server 2>/dev/null || true' EXIT
sleep 20
tmux -L tokpit-capture capture-pane -p
tmux -L tokpit-capture send-keys q
sleep 2
