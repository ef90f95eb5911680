# shellcheck shell=bash disable=SC2154 # the variables are those of scripts/services
# PostgreSQL for scripts/services.

postgres_variable() {
    echo LONGHAUL_TEST_POSTGRES
}

postgres_url() {
    echo "postgres://longhaul:$password@127.0.0.1:$1/postgres"
}

# The tests are tuned for 15; any newer version works.
postgres_programs() {
    local folder
    for folder in /usr/lib/postgresql/{15..30}/bin "$(dirname "$(command -v postgres || echo /missing/postgres)")"; do
        if [[ -x $folder/postgres && -x $folder/initdb && -x $folder/psql ]]; then
            echo "$folder"
            return 0
        fi
    done
    return 1
}

postgres_is_installed() {
    postgres_programs >/dev/null
}

postgres_packages() {
    apt_knows postgresql-15 && echo postgresql-15 || echo postgresql
}

# It refuses to run as root.
postgres_user() {
    if [[ $EUID -ne 0 ]]; then
        id -un
    elif id -u postgres >/dev/null 2>&1; then
        echo postgres
    else
        echo nobody
    fi
}

# What a data directory depends on: if this changes, it is made again.
postgres_identity() {
    local version
    version=$("$(postgres_programs)/postgres" --version)
    [[ $version =~ [0-9]+ ]]
    echo "${BASH_REMATCH[0]} $(postgres_user) $password"
}

postgres_initialise() {
    local home=$1 user as
    user=$(postgres_user)
    mapfile -t as < <(become "$user")
    (umask 077 && echo "$password" >password) && chown "$user" password &&
        ${as[@]+"${as[@]}"} "$(postgres_programs)/initdb" --pgdata="$home/data" --username=longhaul --pwfile=password \
            --auth=scram-sha-256 --encoding=UTF8 --locale=C.UTF-8 --no-instructions &&
        rm -f password
}

postgres_exec() {
    local home=$1 port=$2 as
    mapfile -t as < <(become "$(postgres_user)")
    # No process uses this directory now. If another program has the pid in this file, the server
    # would not start.
    rm -f "$home/data/postmaster.pid"
    exec setsid ${as[@]+"${as[@]}"} "$(postgres_programs)/postgres" -D "$home/data" -p "$port" \
        -c listen_addresses=127.0.0.1 -c unix_socket_directories= \
        -c max_connections=300 -c shared_buffers="${LONGHAUL_TEST_SHARED_BUFFERS:-256MB}" -c jit=off \
        -c fsync=on -c synchronous_commit=on -c full_page_writes=on \
        -c wal_level=replica -c max_wal_size=2GB -c checkpoint_timeout=15min \
        -c autovacuum=on -c autovacuum_naptime=5s
}

postgres_runs_as() {
    local data=$1
    shift
    [[ $1 == */postgres && $2 == -D && $3 == "$data" ]]
}

# "Fast" shutdown: ends the sessions and writes a checkpoint.
postgres_stop_signal() {
    echo INT
}

postgres_sql() {
    PGPASSWORD=$password PGCONNECT_TIMEOUT=5 "$(postgres_programs)/psql" --no-psqlrc --quiet --tuples-only --no-align \
        --set=ON_ERROR_STOP=1 --host=127.0.0.1 --port="$1" --username=longhaul --dbname=postgres <<<"$2"
}

postgres_answers() {
    postgres_sql "$1" 'SELECT 1;'
}

# Drops the databases of test runs that were killed.
postgres_drop_leftovers() {
    postgres_sql "$1" "SELECT format('DROP DATABASE %I WITH (FORCE)', datname) FROM pg_database
        WHERE starts_with(datname, 'longhaul_test_') OR starts_with(datname, 'lh_') \\gexec"
}
