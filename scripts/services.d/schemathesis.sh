# shellcheck shell=bash disable=SC2154 # the variables are those of scripts/services
# Schemathesis, which makes requests from the OpenAPI document in the tests. It is Python: where it is missing it gets a
# virtual environment of its own, with the versions that schemathesis.txt pins.

# Puts its path into LONGHAUL_TEST_SCHEMATHESIS, unless the caller has.
find_schemathesis() {
    local list=$here/services.d/schemathesis.txt folder
    folder=$root/target/tools/schemathesis-$(sha256sum "$list" | cut -c1-8)
    : "${LONGHAUL_TEST_SCHEMATHESIS:=$folder/bin/schemathesis}"
    export LONGHAUL_TEST_SCHEMATHESIS
    [[ $LONGHAUL_TEST_SCHEMATHESIS != "$folder"/* || -e $folder/complete ]] || make_schemathesis "$folder" "$list"
    [[ -x $LONGHAUL_TEST_SCHEMATHESIS ]] || die "LONGHAUL_TEST_SCHEMATHESIS names no program: $LONGHAUL_TEST_SCHEMATHESIS"
}

make_schemathesis() {
    local folder=$1 list=$2
    say "fetching Schemathesis; the output goes to target/services/install.log"
    get_python
    rm -rf "$root"/target/tools/schemathesis-*
    mkdir -p "$(dirname "$folder")"
    if ! (
        python3 -m venv "$folder" &&
            "$folder/bin/pip" install --disable-pip-version-check --no-input --requirement "$list" &&
            touch "$folder/complete"
    ) </dev/null >>"$state/install.log" 2>&1 8>&- 9>&-; then
        stop_if_interrupted
        tail -n 5 "$state/install.log" >&2
        die "could not fetch Schemathesis from PyPI; install $(grep '^schemathesis==' "$list") yourself and name the program in LONGHAUL_TEST_SCHEMATHESIS"
    fi
}

# Debian's python3 comes without what makes virtual environments.
get_python() {
    ! python3 -c 'import venv, ensurepip' 2>/dev/null || return 0
    if [[ $EUID -ne 0 ]] || ! command -v apt-get >/dev/null; then
        die "Python 3.10 or newer with venv is missing; on Debian and Ubuntu: sudo apt-get install -y python3-venv"
    fi
    if ! (
        export DEBIAN_FRONTEND=noninteractive
        apt-get update || true # a broken third-party source need not matter; the installation will tell
        apt-get install -y --no-install-recommends --no-remove -o DPkg::Lock::Timeout=300 python3-venv
    ) </dev/null >>"$state/install.log" 2>&1 8>&- 9>&-; then
        stop_if_interrupted
        tail -n 5 "$state/install.log" >&2
        die "could not install python3-venv; the tests need Python 3.10 or newer with venv"
    fi
}
