//! The operating system's view of this process. Where it has no `/proc`, the metrics are absent.

use std::fs;

/// Clock ticks per second in `/proc`, on every Linux platform.
const TICKS: f64 = 100.0;

#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct ProcessSnapshot {
    pub(crate) resident_bytes: Option<i64>,
    pub(crate) cpu_seconds: Option<f64>,
    pub(crate) open_files: Option<i64>,
}

impl ProcessSnapshot {
    pub(crate) fn look() -> Self {
        Self {
            resident_bytes: fs::read_to_string("/proc/self/status")
                .ok()
                .and_then(|text| resident_bytes(&text)),
            cpu_seconds: fs::read_to_string("/proc/self/stat")
                .ok()
                .and_then(|text| cpu_seconds(&text)),
            open_files: fs::read_dir("/proc/self/fd")
                .ok()
                .and_then(|all| i64::try_from(all.count()).ok()),
        }
    }
}

fn resident_bytes(status: &str) -> Option<i64> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    let number = line.trim().strip_suffix(" kB")?;
    let kib: i64 = number.trim().parse().ok()?;
    Some(kib * 1_024)
}

fn cpu_seconds(stat: &str) -> Option<f64> {
    // The name of the program is in brackets and may contain anything. The numbers follow the last
    // bracket.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = |n: usize| fields.get(n)?.parse::<f64>().ok();
    Some((ticks(11)? + ticks(12)?) / TICKS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proc_files_are_parsed() {
        assert_eq!(
            resident_bytes("Name:\tx\nVmRSS:\t    1024 kB\n"),
            Some(1_048_576)
        );
        let stat = "7 (a) b) S 1 2 3 4 5 6 7 8 9 10 250 50 0 0";
        assert_eq!(cpu_seconds(stat), Some(3.0));
    }
}
