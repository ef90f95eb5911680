# shellcheck shell=bash disable=SC2154 # the variables are those of scripts/services
# Redis for scripts/services.

redis_variable() {
    echo LONGHAUL_TEST_REDIS
}

redis_url() {
    echo "redis://:$password@127.0.0.1:$1/"
}

redis_is_installed() {
    command -v redis-server >/dev/null && command -v redis-cli >/dev/null
}

redis_packages() {
    echo redis-server
}

# It could run as root, but does not need to.
redis_user() {
    if [[ $EUID -eq 0 ]] && id -u redis >/dev/null 2>&1; then
        echo redis
    else
        id -un
    fi
}

# What a data directory depends on: if this changes, it is made again.
redis_identity() {
    local version
    version=$(redis-server --version)
    [[ $version =~ v=([0-9]+) ]]
    echo "${BASH_REMATCH[1]} $(redis_user) $password"
}

redis_initialise() {
    install -d -m 700 -o "$(redis_user)" "$1/data"
}

# The password is in a file, because every user can read the arguments of a process. A cache keeps nothing over a restart.
# Its arguments stay unchanged (set-proc-title no): server_pid finds the data directory in them.
redis_exec() {
    local home=$1 port=$2 as
    mapfile -t as < <(become "$(redis_user)")
    (umask 077 && cat >"$home/redis.conf") <<CONF
requirepass $password
bind 127.0.0.1
daemonize no
set-proc-title no
save ""
appendonly no
maxmemory 256mb
maxmemory-policy noeviction
CONF
    chown "$(redis_user)" "$home/redis.conf"
    exec setsid ${as[@]+"${as[@]}"} "$(command -v redis-server)" "$home/redis.conf" --dir "$home/data" --port "$port"
}

redis_runs_as() {
    local data=$1
    shift
    [[ $1 == */redis-server && ${3-} == --dir && ${4-} == "$data" ]]
}

redis_stop_signal() {
    echo TERM
}

redis_answers() {
    [[ $(REDISCLI_AUTH=$password timeout 5 redis-cli -h 127.0.0.1 -p "$1" ping) == PONG ]]
}

# A server starts empty, so there is nothing to drop.
redis_drop_leftovers() {
    :
}
