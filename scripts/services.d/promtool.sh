# shellcheck shell=bash disable=SC2154 # the variables are those of scripts/services
# promtool, which checks alert rules and metrics in the tests. It is a single program: if it is missing, it is taken
# from Debian's package, without installing or starting anything.

# Puts its path into LONGHAUL_TEST_PROMTOOL, unless the caller has.
find_promtool() {
    local tool=$root/target/tools/promtool
    if [[ -z ${LONGHAUL_TEST_PROMTOOL-} ]]; then
        LONGHAUL_TEST_PROMTOOL=$(type -P promtool) || LONGHAUL_TEST_PROMTOOL=$tool
    fi
    export LONGHAUL_TEST_PROMTOOL
    [[ -x $LONGHAUL_TEST_PROMTOOL ]] || fetch_promtool "$tool"
}

fetch_promtool() {
    local tool=$1 folder
    if ! command -v apt-get >/dev/null || ! command -v dpkg-deb >/dev/null; then
        die "promtool is missing: install Prometheus, or name promtool in LONGHAUL_TEST_PROMTOOL"
    fi
    say "fetching promtool; the output goes to target/services/install.log"
    folder=$(mktemp -d)
    if ! (
        cd "$folder"
        apt-get download prometheus || { apt-get update && apt-get download prometheus; }
        dpkg-deb --extract prometheus_*.deb out
        mkdir -p "$(dirname "$tool")"
        mv -f out/usr/bin/promtool "$tool"
    ) </dev/null >>"$state/install.log" 2>&1 8>&- 9>&-; then
        rm -rf "$folder"
        tail -n 5 "$state/install.log" >&2
        die "could not fetch promtool; install Prometheus, or name promtool in LONGHAUL_TEST_PROMTOOL"
    fi
    rm -rf "$folder"
}
