#!/bin/bash
# A Slurm of one node on this machine, to try the batch scripts: in a container or a virtual machine of your own, as root.
#   apt-get install -y slurm-wlm munge openssl
#   deploy/slurm/one_machine.sh start [FOLDER]    # settings, state and logs; /var/lib/slurm/one-machine by default
#   deploy/slurm/one_machine.sh stop [FOLDER]
# Not for a machine that others use: the daemons run as root, and nothing limits what a job takes.
set -euo pipefail

action=${1:-}
folder=${2:-/var/lib/slurm/one-machine}
settings=$folder/slurm.conf
default=/etc/slurm/slurm.conf

fail() {
  echo "one_machine.sh: $1" >&2
  exit 1
}

stop() {
  local daemon pid
  for daemon in slurmd slurmctld munged; do # munged only if it was started here
    pid=$(cat "$folder/$daemon.pid" 2>/dev/null || true)
    # After a restart of the machine the number may be another program's.
    if [[ -n $pid && $(cat "/proc/$pid/comm" 2>/dev/null) == "$daemon" ]]; then
      kill "$pid"
      rm -f "$folder/$daemon.pid"
      for _ in {1..100}; do
        # Where nothing reaps processes, one that has ended stays in the table, as Z.
        if ! grep -q '^State:[[:space:]]*[^Z[:space:]]' "/proc/$pid/status" 2>/dev/null; then break; fi
        sleep 0.1
      done
    fi
  done
  if [[ $(readlink "$default" || true) == "$settings" ]]; then rm "$default"; fi
}

start_munge() {
  if munge -n 2>/dev/null | unmunge >/dev/null 2>&1; then return; fi
  # In a container nothing has made the folder that systemd makes, and Debian starts no service.
  install -d -o munge -g munge -m 0755 /run/munge
  runuser -u munge -- munged || fail "munged did not start; expected a key in /etc/munge; run mungekey --create, or see /var/log/munge"
  cp /run/munge/munged.pid "$folder/munged.pid"
  munge -n | unmunge >/dev/null || fail "munged runs, but its credentials are refused; see /var/log/munge"
}

write_settings() {
  local host
  host=$(hostname -s)
  install -d "$folder/state" "$folder/spool"
  # slurmd measures the processors and the memory. proctrack/linuxproc and task/none: a container may write no cgroups.
  # cred_expire and sched_interval: else a requeued job waits two to three minutes, until its old credential has expired.
  cat >"$settings" <<END
ClusterName=one-machine
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=${SLURMCTLD_PORT:-6817}
SlurmdPort=${SLURMD_PORT:-6818}
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=cred_expire=30
CredType=cred/munge
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd.pid
SlurmctldLogFile=$folder/slurmctld.log
SlurmdLogFile=$folder/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerParameters=sched_interval=5
ReturnToService=2
$(slurmd -C | grep -o '^NodeName=[^ ]*') NodeAddr=127.0.0.1 $(slurmd -C | grep -o '^NodeName=.*' | grep -oE '\b(CPUs|RealMemory)=[0-9]+' | tr '\n' ' ') State=UNKNOWN
PartitionName=all Nodes=$host Default=YES MaxTime=INFINITE State=UP
END
}

[[ $EUID == 0 ]] || fail "got user $(id -un); expected root; run it as root"
case $action in
  stop) stop ;;
  start)
    for program in slurmctld slurmd sbatch munged openssl; do
      command -v "$program" >/dev/null || fail "$program is missing; run: apt-get install -y slurm-wlm munge openssl"
    done
    if [[ $folder == /var/lib/slurm/one-machine && -e $default && $(readlink "$default" || true) != "$settings" ]]; then
      fail "got a $default of another Slurm; expected none; give a FOLDER, and that Slurm stays as it is"
    fi
    stop
    write_settings
    start_munge
    export SLURM_CONF=$settings
    slurmctld
    slurmd
    for _ in {1..100}; do
      if [[ $(sinfo --noheader --format %t 2>/dev/null || true) == idle ]]; then break; fi
      sleep 0.3
    done
    [[ $(sinfo --noheader --format %t 2>/dev/null || true) == idle ]] || fail "the node is not idle after 30 s; see $folder/slurmctld.log and slurmd.log"
    if [[ $folder == /var/lib/slurm/one-machine ]]; then
      ln -sf "$settings" "$default"
    else
      echo "for this Slurm: export SLURM_CONF=$settings"
    fi
    sinfo --Node --format '%N %t: %c processors, %m MB'
    ;;
  *)
    echo "usage: one_machine.sh start|stop [FOLDER]" >&2
    exit 2
    ;;
esac
