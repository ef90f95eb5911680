//! The worker processes: restarted when they end, and signalled by the nemesis.

use std::fs::OpenOptions;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::gateway::Pipe;

/// How long a node may take to stop.
const STOP_WAIT: Duration = Duration::from_secs(60);
/// How long a node that ended by itself waits before its restart.
const RESTART_PAUSE: Duration = Duration::from_millis(200);

/// The options of a node.
#[derive(Debug, Clone)]
pub(crate) struct NodePlan {
    pub(crate) url: String,
    pub(crate) dir: PathBuf,
    pub(crate) slots: usize,
    pub(crate) fleet: Option<FleetPlan>,
}

/// The additional options of a node in a fleet.
#[derive(Debug, Clone)]
pub(crate) struct FleetPlan {
    pub(crate) broker: String,
    pub(crate) redis: String,
    /// The HTTP port of an API node, which runs no tasks.
    pub(crate) api: Option<u16>,
}

/// One node with all its processes.
#[derive(Debug)]
pub(crate) struct Node {
    number: usize,
    plan: NodePlan,
    pub(crate) pipe: Arc<Pipe>,
    process: Mutex<ProcessState>,
}

#[derive(Debug, Default)]
struct ProcessState {
    pid: Option<Pid>,
    /// The number of processes so far.
    count: u32,
    is_frozen: bool,
    is_killed: bool,
    /// The number of processes that ended without being killed.
    unexpected_exits: u32,
}

impl ProcessState {
    /// The process, unless it is frozen.
    fn running_pid(&self) -> Option<Pid> {
        if self.is_frozen { None } else { self.pid }
    }
}

impl Node {
    fn process(&self) -> std::sync::MutexGuard<'_, ProcessState> {
        // Each change is one assignment, so a poisoned lock is still good.
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The current process, as `node.process`.
    pub(crate) fn incarnation(&self) -> String {
        format!("{}.{}", self.number, self.process().count)
    }

    pub(crate) fn is_frozen(&self) -> bool {
        self.process().is_frozen
    }

    /// Kills the process. Returns false without a process, and for a frozen one, which becomes a
    /// zombie.
    pub(crate) fn kill(&self) -> bool {
        let mut process = self.process();
        let Some(pid) = process.running_pid() else {
            return false;
        };

        process.is_killed = kill_process(pid, Signal::KILL).is_ok();
        process.is_killed
    }

    pub(crate) fn freeze(&self) -> bool {
        let mut process = self.process();
        let Some(pid) = process.running_pid() else {
            return false;
        };

        process.is_frozen = kill_process(pid, Signal::STOP).is_ok();
        process.is_frozen
    }

    pub(crate) fn thaw(&self) {
        let mut process = self.process();
        if let Some(pid) = process.pid
            && process.is_frozen
        {
            // The process may have ended.
            let _ = kill_process(pid, Signal::CONT);
        }
        process.is_frozen = false;
    }

    /// Starts the next process.
    fn start(&self) -> anyhow::Result<Child> {
        let mut process = self.process();
        process.count += 1;
        let incarnation = format!("{}.{}", self.number, process.count);

        let log_path = self.plan.dir.join(format!("node-{}.log", self.number));
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(log_path)?;

        // The path may hold a newer build by now, but all nodes must run the same program.
        let mut command = Command::new("/proc/self/exe");
        command.arg0("torture");
        command.args(["node", "--url", &self.plan.url, "--id", &incarnation]);
        command
            .args(["--slots", &self.plan.slots.to_string(), "--dir"])
            .arg(&self.plan.dir);

        if let Some(fleet) = &self.plan.fleet {
            command.args(["--broker", &fleet.broker, "--redis", &fleet.redis]);
            command.args(fleet.api.map(|port| format!("--api={port}")));
        }

        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()?;

        process.pid = child
            .id()
            .and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
        process.is_killed = false;

        let pipes = child.stdin.take().zip(child.stdout.take());
        let (stdin, stdout) = pipes.context("a node has no pipes")?;

        self.pipe.attach(stdin, stdout);
        Ok(child)
    }

    /// Restarts the node until `ending` is set, then stops it.
    async fn supervise(self: Arc<Self>, mut ending: watch::Receiver<bool>) -> anyhow::Result<()> {
        loop {
            let mut child = self.start()?;
            // A wait that is dropped loses no exit status: the next wait returns it.
            let ended = tokio::select! {
                ended = child.wait() => Some(ended?),
                _ = ending.wait_for(|is_ending| *is_ending) => None,
            };

            if ended.is_none() {
                self.pipe.detach();
                let stopped = tokio::time::timeout(STOP_WAIT, child.wait()).await;
                self.process().pid = None;
                stopped.context("a node does not stop")??;
                return Ok(());
            }

            let was_killed = {
                let mut process = self.process();
                process.pid = None;
                process.is_frozen = false;
                process.unexpected_exits += u32::from(!process.is_killed);
                process.is_killed
            };

            if !was_killed {
                tokio::time::sleep(RESTART_PAUSE).await;
            }
        }
    }
}

/// All nodes.
#[derive(Debug)]
pub(crate) struct Cluster {
    pub(crate) nodes: Vec<Arc<Node>>,
    supervisors: Vec<JoinHandle<anyhow::Result<()>>>,
    ending: watch::Sender<bool>,
}

impl Cluster {
    /// One node for each plan, numbered from 1.
    pub(crate) fn start(plans: Vec<NodePlan>) -> Self {
        let (ending, is_ending) = watch::channel(false);
        let node = |(index, plan)| {
            let pipe = Arc::new(Pipe::default());
            Arc::new(Node {
                number: index + 1,
                plan,
                pipe,
                process: Mutex::default(),
            })
        };

        let nodes: Vec<Arc<Node>> = plans.into_iter().enumerate().map(node).collect();
        let supervisors = nodes
            .iter()
            // A task for each node: one that restarts must not delay the others.
            .map(|node| tokio::spawn(Arc::clone(node).supervise(is_ending.clone())))
            .collect();

        Self {
            nodes,
            supervisors,
            ending,
        }
    }

    /// Stops all nodes. Returns how many processes ended without being killed.
    pub(crate) async fn stop(self) -> anyhow::Result<u32> {
        self.ending.send_replace(true);
        for supervisor in self.supervisors {
            supervisor.await??;
        }
        Ok(self
            .nodes
            .iter()
            .map(|node| node.process().unexpected_exits)
            .sum())
    }
}
