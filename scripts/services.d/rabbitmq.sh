# shellcheck shell=bash disable=SC2154 # the variables are those of scripts/services
# RabbitMQ for scripts/services.

rabbitmq_variable() {
    echo LONGHAUL_TEST_RABBITMQ
}

rabbitmq_url() {
    echo "amqp://longhaul:$password@127.0.0.1:$1/longhaul"
}

# Not the program in Debian's PATH: it changes the user and writes to the folders of the system's server.
rabbitmq_server() {
    local folder
    for folder in /usr/lib/rabbitmq/bin "$(dirname "$(command -v rabbitmq-server || echo /missing/rabbitmq-server)")"; do
        if [[ -x $folder/rabbitmq-server && -x $folder/rabbitmq-env ]]; then
            readlink -f "$folder/rabbitmq-server"
            return 0
        fi
    done
    return 1
}

rabbitmq_is_installed() {
    rabbitmq_server >/dev/null && command -v erl >/dev/null && command -v epmd >/dev/null
}

rabbitmq_packages() {
    echo rabbitmq-server
}

# It could run as root, but does not need to.
rabbitmq_user() {
    if [[ $EUID -eq 0 ]] && id -u rabbitmq >/dev/null 2>&1; then
        echo rabbitmq
    else
        id -un
    fi
}

# What a data directory depends on: if this changes, it is made again. The path of the program has its version.
rabbitmq_identity() {
    echo "$(rabbitmq_server) $(rabbitmq_user) $password"
}

rabbitmq_initialise() {
    local data=$1/data user
    user=$(rabbitmq_user)
    install -d -m 700 -o "$user" "$data" &&
        (umask 077 && od -An -N16 -tx1 /dev/urandom | tr -d ' \n' >"$data/.erlang.cookie") &&
        chown "$user" "$data/.erlang.cookie" && chmod 400 "$data/.erlang.cookie"
}

# Erlang's port mapper, epmd, is private too: the node can then have the same name at every start, which its data depends
# on. The epmd is a child of the server, and the kernel ends it with its parent; left alone, Erlang would start one that
# outlives the server.
#
# The variables keep the server from everything in /etc/rabbitmq and /var/lib/rabbitmq, and RUNNING_UNDER_SYSTEMD makes it
# the process that its caller started and not a child of it. The last arguments name its data, for server_pid.
rabbitmq_exec() {
    local home=$1 port=$2 as epmd_port user
    user=$(rabbitmq_user)
    mapfile -t as < <(become "$user")
    # The leftovers of a killed test cannot be listed over AMQP, so only servers for one caller keep their queues.
    [[ $state == "$own"/* ]] || rm -rf "$home/data/mnesia"
    rabbitmq_settings "$home" "$port" "$user"
    epmd_port=$(pick_port)
    echo "$epmd_port" >"$home/epmd.port" # for rabbitmqctl
    setsid ${as[@]+"${as[@]}"} setpriv --pdeathsig KILL -- epmd -port "$epmd_port" -address 127.0.0.1 &
    wait_until 10 rabbitmq_listens "$epmd_port" || die "the epmd does not listen on port $epmd_port: address already in use?"
    export HOME=$home/data ERL_EPMD_PORT=$epmd_port ERL_EPMD_ADDRESS=127.0.0.1 ERL_AFLAGS='-start_epmd false'
    export ERL_CRASH_DUMP=$home/erl_crash.dump
    export RABBITMQ_NODENAME=longhaul@localhost RABBITMQ_MNESIA_BASE=$home/data/mnesia RABBITMQ_LOGS=- RABBITMQ_LOG_BASE=$home
    export RABBITMQ_CONFIG_FILE=$home/rabbitmq.conf RABBITMQ_ADVANCED_CONFIG_FILE=$home/advanced.config
    export RABBITMQ_CONFIG_FILES=$home/conf.d RABBITMQ_CONF_ENV_FILE=$home/rabbitmq-env.conf
    export RABBITMQ_ENABLED_PLUGINS_FILE=$home/enabled_plugins RABBITMQ_SCHEMA_DIR=$home/data/schema
    export RABBITMQ_GENERATED_CONFIG_DIR=$home/data/config RABBITMQ_PID_FILE=$home/pid
    RABBITMQ_DIST_PORT=$((port + 1)) # it opens this port late: a port picked now could be taken by then
    export RABBITMQ_DIST_PORT RUNNING_UNDER_SYSTEMD=1
    exec setsid ${as[@]+"${as[@]}"} "$(rabbitmq_server)" -kernel inet_dist_use_interface '{127,0,0,1}' -data "$home/data"
}

rabbitmq_listens() {
    (: <>/dev/tcp/127.0.0.1/"$1") 2>/dev/null
}

# The password is in a file, because every user can read the arguments of a process.
rabbitmq_settings() {
    local home=$1 port=$2 user=$3
    mkdir -p "$home/conf.d"
    : >"$home/rabbitmq-env.conf"
    echo '[].' | tee "$home/enabled_plugins" >"$home/advanced.config"
    (umask 077 && cat >"$home/rabbitmq.conf") <<CONF
listeners.tcp.1 = 127.0.0.1:$port
default_vhost = longhaul
default_user = longhaul
default_pass = $password
vm_memory_high_watermark.absolute = 512MB
disk_free_limit.absolute = 50MB
collect_statistics = none
collect_statistics_interval = 60000
log.console.level = info
log.connection.level = error
CONF
    [[ -z ${LONGHAUL_TEST_CONSUMER_TIMEOUT-} ]] || echo "consumer_timeout = $LONGHAUL_TEST_CONSUMER_TIMEOUT" >>"$home/rabbitmq.conf"
    chown "$user" "$home/rabbitmq.conf"
}

rabbitmq_runs_as() {
    local data=$1
    shift
    [[ $1 == */beam.smp && " $* " == *" -data $data "* ]]
}

rabbitmq_stop_signal() {
    echo TERM
}

# Logs in: sends the greeting and the frame `connection.start-ok`, and expects `connection.tune`.
rabbitmq_answers() (
    exec 3<>"/dev/tcp/127.0.0.1/$1"
    printf 'AMQP\0\0\x09\x01' >&3
    size=$(rabbitmq_bytes 7)
    rabbitmq_bytes $((0x${size:6:8} + 1)) >/dev/null
    response=$((1 + 8 + 1 + ${#password}))
    printf "\\x01\\0\\0\\0\\0\\0\\x$(printf %02x $((4 + 4 + 6 + 4 + response + 6)))\\0\\x0a\\0\\x0b\\0\\0\\0\\0\\x05PLAIN" >&3
    printf "\\0\\0\\0\\x$(printf %02x "$response")\\0longhaul\\0%s\\x05en_US\\xce" "$password" >&3
    [[ $(rabbitmq_bytes 11) == *000a001e ]]
)

rabbitmq_bytes() {
    timeout 5 head -c "$1" <&3 | od -An -v -tx1 | tr -d ' \n'
}

# A server starts empty, so there is nothing to drop.
rabbitmq_drop_leftovers() {
    :
}
