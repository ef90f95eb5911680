//! The machine: the port, the folders, the free disk space and the limit of open files.

use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::net::TcpListener;

use super::Check;
use crate::config::Config;

/// How long the process that has the port may take to answer.
const DEADLINE: Duration = Duration::from_secs(2);
/// Files that a node opens besides its connections: the store, logs, files of tasks.
const OTHER_FILES: u64 = 100;
/// Free bytes below which this is a warning, and below which it is a failure.
const FREE_WARN: u64 = 1024 * 1024 * 1024;
const FREE_FAIL: u64 = 100 * 1024 * 1024;

pub(super) async fn port(address: SocketAddr) -> Check {
    let Err(error) = TcpListener::bind(address).await else {
        return Check::ok("port", format!("{address} is free"));
    };

    if is_longhaul(address).await {
        return Check::ok("port", format!("Longhaul answers at {address}"));
    }

    Check::fail(
        "port",
        format!("{address}: {error}"),
        "stop the process that has it, or set LONGHAUL_LISTEN to another address",
    )
}

async fn is_longhaul(address: SocketAddr) -> bool {
    let asked = async {
        let client = reqwest::Client::builder().no_proxy().build().ok()?;
        let health = client.get(format!("http://{address}/healthz"));
        let answer = health.send().await.ok()?;
        answer.json::<serde_json::Value>().await.ok()
    };

    let answer = tokio::time::timeout(DEADLINE, asked).await.ok().flatten();
    answer.is_some_and(|health| health["status"] == "ok")
}

pub(super) fn folders(config: &Config) -> Vec<Check> {
    let artifacts = config.artifacts_folder();
    let mut checks = Vec::new();

    if let Some(data) = data_folder(config) {
        checks.push(permissions("data folder", &data));
        checks.push(writable("data folder", &data));
        checks.push(writable("artifacts", &artifacts));
        checks.push(space(&data));
    } else {
        checks.push(writable("artifacts", &artifacts));
        checks.push(space(&artifacts));
    }

    checks
}

/// The folder of an embedded store.
fn data_folder(config: &Config) -> Option<PathBuf> {
    let file = config.store_file()?;

    match file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => Some(folder.to_owned()),
        _ => Some(PathBuf::from(".")),
    }
}

/// Whether only the owner can read the folder: the parameters of tasks are private.
fn permissions(name: &'static str, folder: &Path) -> Check {
    let shown = folder.display();
    let Ok(metadata) = folder.metadata() else {
        return Check::ok(
            name,
            format!("{shown} does not exist yet; only its owner will be able to read it"),
        );
    };

    let mode = metadata.mode() & 0o777;
    if mode & 0o077 == 0 {
        return Check::ok(name, format!("only its owner can read {shown} ({mode:o})"));
    }

    Check::warn(
        name,
        format!("others can read {shown} ({mode:o})"),
        format!("chmod 700 {shown}"),
    )
}

fn writable(name: &'static str, folder: &Path) -> Check {
    let existing = nearest(folder);
    let shown = existing.display();
    let probe = existing.join(format!(".longhaul-doctor-{}", std::process::id()));
    let wrote = std::fs::write(&probe, b"").and_then(|()| std::fs::remove_file(&probe));

    match wrote {
        Ok(()) if existing == folder => Check::ok(name, format!("{shown} can be written")),
        Ok(()) => Check::ok(name, format!("{} can be made in {shown}", folder.display())),
        Err(error) => Check::fail(
            name,
            format!("{shown} cannot be written: {error}"),
            format!("give this user the right to write {shown}"),
        ),
    }
}

fn space(folder: &Path) -> Check {
    let existing = nearest(folder);
    let Ok(stat) = rustix::fs::statvfs(&existing) else {
        return Check::warn(
            "disk",
            "the free space could not be read",
            "check it with df",
        );
    };
    let free = stat.f_bavail.saturating_mul(stat.f_frsize);
    let found = format!("{} MiB free for {}", free / 1024 / 1024, folder.display());

    match free {
        0..FREE_FAIL => Check::fail(
            "disk",
            found,
            "free some space: a store that cannot write accepts no tasks",
        ),
        FREE_FAIL..FREE_WARN => Check::warn("disk", found, "free some space soon"),
        _ => Check::ok("disk", found),
    }
}

/// Whether the limit of open files allows as many connections as are configured.
pub(super) fn handles(config: &Config) -> Check {
    let connections = config.http.connections;
    let sockets = connections.saturating_add(config.http.probe_connections);
    let wanted = u64::try_from(sockets)
        .unwrap_or(u64::MAX)
        .saturating_add(OTHER_FILES);

    // A node raises its limit to the maximum when it starts.
    let most = rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum;
    let Some(most) = most.filter(|most| *most < wanted) else {
        let found = format!("enough for {connections} connections");
        return Check::ok("open files", found);
    };

    let found = format!("{most} files may be open, and http.connections is {connections}");
    let advice = format!(
        "raise the limit (ulimit -Hn {wanted}, LimitNOFILE= of systemd), or lower http.connections"
    );
    Check::warn("open files", found, advice)
}

/// The folder, or its nearest ancestor that exists.
fn nearest(folder: &Path) -> PathBuf {
    let existing = folder.ancestors().find(|path| path.is_dir());
    existing.map_or_else(|| PathBuf::from("."), Path::to_owned)
}
