# shellcheck shell=bash disable=SC2154 # the variables are those of scripts/services
# MariaDB for scripts/services.

mariadb_variable() {
    echo LONGHAUL_TEST_MYSQL
}

mariadb_url() {
    echo "mysql://longhaul:$password@127.0.0.1:$1/"
}

# MySQL's own mysqld is initialised differently; to use one, name it in the variable.
mariadb_server() {
    local server
    server=$(mariadb_program mariadbd mysqld) && [[ $("$server" --version) == *MariaDB* ]] && echo "$server"
}

# The first of these names that is installed: the newer one, then the one from MySQL.
mariadb_program() {
    local name
    for name in "$@"; do
        PATH=$PATH:/usr/sbin:/usr/local/sbin type -P "$name" && return 0
    done
    return 1
}

mariadb_is_installed() {
    { mariadb_server && mariadb_program mariadb-install-db mysql_install_db && mariadb_program mariadb mysql; } >/dev/null
}

# The core packages have the programs without a system service. Older releases have numbers in their names.
mariadb_packages() {
    apt_knows mariadb-server-core && echo mariadb-server-core mariadb-client-core || echo mariadb-server
}

mariadb_user() {
    id -un
}

# What a data directory depends on: if this changes, it is made again.
mariadb_identity() {
    local version
    version=$("$(mariadb_server)" --version)
    [[ $version =~ [0-9]+\.[0-9]+ ]]
    echo "${BASH_REMATCH[0]} $(mariadb_user) $password"
}

# The path is relative because the installer fails on a space in an absolute one.
mariadb_initialise() {
    "$(mariadb_program mariadb-install-db mysql_install_db)" --no-defaults --datadir=./data --user="$(mariadb_user)" \
        --skip-test-db --auth-root-authentication-method=normal --innodb-log-file-size=512M
}

# The first statements of every start leave one account, open to loopback and the password alone.
mariadb_exec() {
    local home=$1 port=$2
    (umask 077 && cat >accounts.sql) <<SQL
DELETE FROM mysql.global_priv WHERE User IN ('', 'root');
FLUSH PRIVILEGES;
CREATE OR REPLACE USER longhaul@127.0.0.1 IDENTIFIED BY '$password';
GRANT ALL PRIVILEGES ON *.* TO longhaul@127.0.0.1 WITH GRANT OPTION;
SQL
    # A starting server removes the temporary tables that it finds: two servers must not share a folder for them.
    mkdir -p "$home/tmp"
    # A relative socket lies in the data directory, and its path cannot be too long.
    exec setsid "$(mariadb_server)" --no-defaults --datadir="$home/data" --user="$(mariadb_user)" --init-file="$home/accounts.sql" \
        --bind-address=127.0.0.1 --port="$port" --socket=mariadb.sock --pid-file="$home/pid" --skip-name-resolve \
        --tmpdir="$home/tmp" --max-connections=500 --max-allowed-packet=16M --character-set-server=utf8mb4 \
        --innodb-buffer-pool-size="${LONGHAUL_TEST_BUFFER_POOL:-256M}" --innodb-log-file-size=512M \
        --innodb-flush-log-at-trx-commit=1 --skip-log-bin --sync-binlog=0
}

mariadb_runs_as() {
    local data=$1
    shift
    [[ $1 == */mariadbd || $1 == */mysqld ]] && [[ $3 == "--datadir=$data" ]]
}

mariadb_stop_signal() {
    echo TERM
}

mariadb_sql() {
    MYSQL_PWD=$password "$(mariadb_program mariadb mysql)" --no-defaults --batch --skip-column-names --connect-timeout=5 \
        --protocol=tcp --host=127.0.0.1 --port="$1" --user=longhaul <<<"$2"
}

mariadb_answers() {
    mariadb_sql "$1" 'SELECT 1;'
}

# Drops the databases of test runs that were killed.
mariadb_drop_leftovers() {
    local drops
    drops=$(mariadb_sql "$1" "SELECT CONCAT('DROP DATABASE \`', schema_name, '\`;') FROM information_schema.schemata
        WHERE LEFT(schema_name, 14) = 'longhaul_test_' OR LEFT(schema_name, 3) = 'lh_';")
    [[ -z $drops ]] || mariadb_sql "$1" "$drops"
}
