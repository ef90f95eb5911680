//! The machine: the port, the folders and what is left of the disk.

use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::net::TcpListener;

use super::Check;
use crate::config::Config;

/// How long somebody who has the port may take to say who they are.
const PATIENCE: Duration = Duration::from_secs(2);
/// Files that a node has open besides its connections: the store, logs, files of tasks.
const FILES_BESIDE: u64 = 100;
/// Free bytes below which people should know, and below which a start is pointless.
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
        "stop who has it, or set LONGHAUL_LISTEN to another address",
    )
}

async fn is_longhaul(address: SocketAddr) -> bool {
    let asked = async {
        let client = reqwest::Client::builder().no_proxy().build().ok()?;
        let answer = client
            .get(format!("http://{address}/healthz"))
            .send()
            .await
            .ok()?;
        answer.json::<serde_json::Value>().await.ok()
    };
    let answer = tokio::time::timeout(PATIENCE, asked).await.ok().flatten();
    answer.is_some_and(|health| health["status"] == "ok")
}

pub(super) fn folders(config: &Config) -> Vec<Check> {
    let data = config
        .store_file()
        .map(|file| file.parent().map_or(PathBuf::new(), Path::to_owned));
    let data = data.map(|folder| {
        if folder.as_os_str().is_empty() {
            PathBuf::from(".")
        } else {
            folder
        }
    });
    let artifacts = config.artifacts_folder();
    let mut checks = Vec::new();
    checks.extend(
        data.as_deref()
            .map(|folder| permissions("data folder", folder)),
    );
    checks.extend(
        data.as_deref()
            .map(|folder| writable("data folder", folder)),
    );
    checks.push(writable("artifacts", &artifacts));
    checks.push(space(data.as_deref().unwrap_or(&artifacts)));
    checks
}

/// What tasks are given is for the owner of the folder alone.
fn permissions(name: &'static str, folder: &Path) -> Check {
    let shown = folder.display();
    let Ok(metadata) = folder.metadata() else {
        return Check::ok(
            name,
            format!("{shown} is not there yet; it will be for its owner alone"),
        );
    };
    let mode = metadata.mode() & 0o777;
    if mode & 0o077 == 0 {
        return Check::ok(name, format!("{shown} is for its owner alone ({mode:o})"));
    }
    Check::warn(
        name,
        format!("{shown} is open to others ({mode:o})"),
        format!("chmod 700 {shown}"),
    )
}

fn writable(name: &'static str, folder: &Path) -> Check {
    let there = nearest(folder);
    let (shown, probe) = (
        there.display(),
        there.join(format!(".longhaul-doctor-{}", std::process::id())),
    );
    let wrote = std::fs::write(&probe, b"").and_then(|()| std::fs::remove_file(&probe));
    match wrote {
        Ok(()) if there == folder => Check::ok(name, format!("{shown} can be written")),
        Ok(()) => Check::ok(name, format!("{} can be made in {shown}", folder.display())),
        Err(error) => Check::fail(
            name,
            format!("{shown} cannot be written: {error}"),
            format!("give this user the right to write {shown}"),
        ),
    }
}

fn space(folder: &Path) -> Check {
    let there = nearest(folder);
    let Ok(told) = rustix::fs::statvfs(&there) else {
        return Check::warn("disk", "the free space could not be read", "look with df");
    };
    let free = told.f_bavail.saturating_mul(told.f_frsize);
    let found = format!("{} MiB free for {}", free / 1024 / 1024, folder.display());
    match free {
        0..FREE_FAIL => Check::fail(
            "disk",
            found,
            "make room: a store that cannot write accepts nothing",
        ),
        FREE_FAIL..FREE_WARN => Check::warn("disk", found, "make room before it is gone"),
        _ => Check::ok("disk", found),
    }
}

/// Whether there are file handles for as many connections as are allowed.
pub(super) fn handles(config: &Config) -> Check {
    let wanted = u64::try_from(config.http.connections)
        .unwrap_or(u64::MAX)
        .saturating_add(FILES_BESIDE);
    // A node asks for as many as it may have.
    let most = rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum;
    let Some(most) = most.filter(|most| *most < wanted) else {
        return Check::ok(
            "open files",
            format!(
                "there are handles for {} connections",
                config.http.connections
            ),
        );
    };
    let found = format!(
        "{most} files may be open, and http.connections is {}",
        config.http.connections
    );
    let advice = format!(
        "raise the limit (ulimit -Hn {wanted}, LimitNOFILE= of systemd), or lower http.connections"
    );
    Check::warn("open files", found, advice)
}

/// The folder, or the part of its path that is there.
fn nearest(folder: &Path) -> PathBuf {
    let there = folder.ancestors().find(|path| path.is_dir());
    there.map_or_else(|| PathBuf::from("."), Path::to_owned)
}
