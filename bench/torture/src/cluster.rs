//! The worker processes: started again whenever they end, and signalled by the nemesis.

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

use crate::door::Pipe;

/// How long a node may take to stop when it is asked to.
const STOP_WAIT: Duration = Duration::from_secs(60);
/// How long a node that ended by itself waits for its next life.
const REST: Duration = Duration::from_millis(200);

/// What a node is started with.
#[derive(Debug, Clone)]
pub(crate) struct NodePlan {
    pub(crate) url: String,
    pub(crate) dir: PathBuf,
    pub(crate) slots: usize,
    pub(crate) fleet: Option<FleetPlan>,
}

/// What it is started with besides, in a fleet.
#[derive(Debug, Clone)]
pub(crate) struct FleetPlan {
    pub(crate) broker: String,
    pub(crate) redis: String,
    /// The port on which it answers HTTP; such a node runs no tasks.
    pub(crate) api: Option<u16>,
}

/// One node, through all its lives.
#[derive(Debug)]
pub(crate) struct Node {
    number: usize,
    plan: NodePlan,
    pub(crate) pipe: Arc<Pipe>,
    life: Mutex<Life>,
}

#[derive(Debug, Default)]
struct Life {
    pid: Option<Pid>,
    /// Processes so far.
    count: u32,
    is_frozen: bool,
    is_killed: bool,
    /// Processes that ended although nobody killed them.
    gave_up: u32,
}

impl Node {
    fn life(&self) -> std::sync::MutexGuard<'_, Life> {
        self.life.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Which process it is now.
    pub(crate) fn incarnation(&self) -> String {
        format!("{}.{}", self.number, self.life().count)
    }

    pub(crate) fn is_frozen(&self) -> bool {
        self.life().is_frozen
    }

    /// Kills the process. `false` when there is none, or when it is frozen and will be needed as a zombie.
    pub(crate) fn kill(&self) -> bool {
        let mut life = self.life();
        let Some(pid) = life.pid.filter(|_| !life.is_frozen) else {
            return false;
        };
        life.is_killed = kill_process(pid, Signal::KILL).is_ok();
        life.is_killed
    }

    pub(crate) fn freeze(&self) -> bool {
        let mut life = self.life();
        let Some(pid) = life.pid.filter(|_| !life.is_frozen) else {
            return false;
        };
        life.is_frozen = kill_process(pid, Signal::STOP).is_ok();
        life.is_frozen
    }

    pub(crate) fn thaw(&self) {
        let mut life = self.life();
        if let Some(pid) = life.pid.filter(|_| life.is_frozen) {
            // A process that is gone needs no thaw.
            let _ = kill_process(pid, Signal::CONT);
        }
        life.is_frozen = false;
    }

    /// Starts the next process.
    fn start(&self) -> anyhow::Result<Child> {
        let mut life = self.life();
        life.count += 1;
        let incarnation = format!("{}.{}", self.number, life.count);
        let log_path = self.plan.dir.join(format!("node-{}.log", self.number));
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(log_path)?;
        // Not by its path, under which another build may have come to stand meanwhile: all nodes are of one run.
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
        life.pid = child
            .id()
            .and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
        life.is_killed = false;
        let (stdin, stdout) = child
            .stdin
            .take()
            .zip(child.stdout.take())
            .context("a node without pipes")?;
        self.pipe.attach(stdin, stdout);
        Ok(child)
    }

    /// Keeps the node alive until `ending` says otherwise, then stops it.
    async fn live(self: Arc<Self>, mut ending: watch::Receiver<bool>) -> anyhow::Result<()> {
        loop {
            let mut child = self.start()?;
            let ended = tokio::select! {
                ended = child.wait() => Some(ended?),
                _ = ending.wait_for(|is_ending| *is_ending) => None,
            };
            if ended.is_none() {
                self.pipe.detach();
                let stopped = tokio::time::timeout(STOP_WAIT, child.wait()).await;
                self.life().pid = None;
                stopped.context("a node does not stop when asked to")??;
                return Ok(());
            }
            let was_killed = {
                let mut life = self.life();
                life.pid = None;
                life.is_frozen = false;
                life.gave_up += u32::from(!life.is_killed);
                life.is_killed
            };
            if !was_killed {
                tokio::time::sleep(REST).await;
            }
        }
    }
}

/// All nodes.
#[derive(Debug)]
pub(crate) struct Cluster {
    pub(crate) nodes: Vec<Arc<Node>>,
    lives: Vec<JoinHandle<anyhow::Result<()>>>,
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
                life: Mutex::default(),
            })
        };
        let nodes: Vec<Arc<Node>> = plans.into_iter().enumerate().map(node).collect();
        let lives = nodes
            .iter()
            .map(|node| tokio::spawn(Arc::clone(node).live(is_ending.clone())))
            .collect();
        Self {
            nodes,
            lives,
            ending,
        }
    }

    /// Stops all nodes as an operator would. Answers with how often one ended although nobody killed it.
    pub(crate) async fn stop(self) -> anyhow::Result<u32> {
        self.ending.send_replace(true);
        for life in self.lives {
            life.await??;
        }
        Ok(self.nodes.iter().map(|node| node.life().gave_up).sum())
    }
}
