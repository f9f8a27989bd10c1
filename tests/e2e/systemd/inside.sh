# The life of the service: made, started, killed, standing still, saved, running a command, stopped, taken away. Prints `name: value` lines.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root
# The project as it would lie after an installation for everybody.
venv=/opt/h/.venv; python=$(readlink -f /opt/project/.venv/bin/python)
mkdir -p $venv/bin; cp /opt/project/.venv/pyvenv.cfg $venv/; ln -s "$python" $venv/bin/python
packages=$(cd /opt/project/.venv && echo lib/python3*/site-packages)
mkdir -p "$venv/$packages"; printf '/opt/project/.venv/%s\n/opt/project\n' "$packages" > "$venv/$packages/project.pth"
printf '#!%s/bin/python\nimport sys\nfrom gateway.cli.main import main\nsys.exit(main())\n' $venv > $venv/bin/hermes
chmod +x $venv/bin/hermes
hermes=$venv/bin/hermes
of() { systemctl show -p "$1" --value hermes-gateway"$2"; }
until_active() { for _ in $(seq 120); do test "$(systemctl is-active hermes-gateway)" = active && return; sleep 0.5; done; }
until_other() { for _ in $(seq 120); do test "$(of MainPID)" != "$1" && break; sleep 0.5; done; until_active; }

case $python in /root/*) echo "closed: $($hermes gateway install --system 2>&1)"; chmod o+rx /root;; *) echo "closed: closed to other users";; esac
mkdir -p /etc/systemd/system/hermes-gateway.service.d
printf '[Service]\nWatchdogSec=4\nLoadCredential=WORD:/etc/word\n' > /etc/systemd/system/hermes-gateway.service.d/quick.conf
echo opensesame > /etc/word
$hermes chat -q "remember that I prefer tea" > /dev/null 2>&1
echo "installed: $($hermes gateway install --system --move-home | tail -1)"
until_active
pid=$(of MainPID)
echo "active: $(of ActiveState) after $(of NRestarts) restarts"
echo "user: $(stat -c %U /var/lib/private/hermes-gateway) $(stat -c %a /var/lib/private/hermes-gateway)"
echo "capabilities: $(grep CapEff /proc/"$pid"/status)"
echo "credential: $(cat /proc/"$pid"/root/run/credentials/hermes-gateway.service/WORD)"
echo "status: $($hermes gateway status | head -1)"
echo "listed: $($hermes sessions list --limit 1 | tail -1)"
kill -9 "$pid"; until_other "$pid"
echo "killed: $(of ActiveState) after $(of NRestarts) restarts"
systemctl reload hermes-gateway
pid=$(of MainPID); kill -STOP "$pid"; until_other "$pid"
echo "stuck: $(of ActiveState) after $(of NRestarts) restarts"
systemctl start hermes-gateway-backup.service
echo "backup: $(of Result -backup.service) $(ls /var/lib/hermes-gateway/backups/*)"
(cd /opt/project && $venv/bin/python -m tests.e2e.systemd.command /var/lib/hermes-gateway tests/e2e/systemd/tried.sh) 2>&1 | sed 's/^/command /'
systemctl stop hermes-gateway
echo "stopped: $(of ActiveState) $(of Result)"
echo "removed: $($hermes gateway uninstall --system | tail -1)"
