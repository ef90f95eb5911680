//! A node as new users start it, called over HTTP alone: `dev` on SQLite, `serve` with tokens on
//! the database servers.

use std::net::SocketAddr;
use std::process::Stdio;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Child;

use crate::client::{Call, Events, Reply, read_until};
use crate::database::{Backend, Database};
use crate::program::process::DEADLINE;

pub(crate) struct Running {
    child: Child,
    pub(crate) address: SocketAddr,
    token: String,
}

impl Running {
    /// Starts it on this store, again if it ran before.
    pub(crate) async fn start(store: Backend, database: &Database, token: &str) -> Self {
        Self::start_with(store, database, token, &[]).await
    }

    /// As [`Self::start`], with more in its environment.
    pub(crate) async fn start_with(
        store: Backend,
        database: &Database,
        token: &str,
        environment: &[(&str, &str)],
    ) -> Self {
        let arguments: &[&str] = match store {
            Backend::Sqlite => &["dev", "--listen", "127.0.0.1:0", "--data", "data"],
            Backend::Postgres | Backend::MySql => &["serve", "--samples"],
        };
        Self::spawn(database, arguments, token, environment).await
    }

    pub(crate) async fn spawn(
        database: &Database,
        arguments: &[&str],
        token: &str,
        environment: &[(&str, &str)],
    ) -> Self {
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(database.folder.path().join("log"))
            .unwrap();
        let mut command = database.program(arguments);

        // Shorter than the defaults, to keep the test short. The lease is long enough that no node
        // is declared dead when the machine stalls for a moment.
        command
            .env("LONGHAUL_MAINTENANCE__LEASE", "6s")
            .env("LONGHAUL_MAINTENANCE__RESCUE_EVERY", "100ms");
        command.envs(environment.iter().copied());
        let mut child = command.stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();

        let greeting = async {
            while let Some(line) = lines.next_line().await.unwrap() {
                if let Some((_, url)) = line.split_once("http://") {
                    let address = url
                        .split(|letter: char| letter == '/' || letter.is_whitespace())
                        .next()
                        .unwrap();
                    return address.parse().unwrap();
                }
            }

            let log = std::fs::read_to_string(database.folder.path().join("log"));
            panic!("it did not start: {}", log.unwrap_or_default());
        };

        let address = tokio::time::timeout(DEADLINE, greeting)
            .await
            .expect("a greeting in time");
        tokio::spawn(
            async move { while lines.next_line().await.is_ok_and(|line| line.is_some()) {} },
        );

        Self {
            child,
            address,
            token: token.to_owned(),
        }
    }

    /// Kills it as a power cut would.
    pub(crate) async fn kill(mut self) {
        self.child.kill().await.unwrap();
    }

    fn signed(&self, call: Call) -> Call {
        call.header("Authorization", &format!("Bearer {}", self.token))
    }

    pub(crate) async fn send(&self, call: Call) -> Reply {
        self.signed(call).send(self.address).await
    }

    pub(crate) async fn get(&self, path: impl Into<String>) -> Value {
        self.send(Call::get(path)).await.expect(200)
    }

    pub(crate) async fn follow(&self, path: impl Into<String>) -> Events {
        self.signed(Call::get(path)).follow(self.address).await
    }

    pub(crate) async fn submit(&self, task_type: &str, parameters: Value, more: Value) -> String {
        let mut body = json!({ "taskType": task_type, "parameters": parameters });
        body.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        let answer = self.send(Call::post("/api/tasks", &body)).await.expect(202);
        answer["taskId"].as_str().unwrap().to_owned()
    }

    /// Everything that a list has, page after page.
    pub(crate) async fn all(&self, path: &str) -> Vec<Value> {
        let mut all = Vec::new();
        let mut next = String::new();
        loop {
            let sign = if path.contains('?') { '&' } else { '?' };
            let page = self.get(format!("{path}{sign}size=200{next}")).await;
            all.extend(page["items"].as_array().unwrap().clone());
            let Some(cursor) = page["nextCursor"].as_str() else {
                return all;
            };
            next = format!("&cursor={cursor}");
        }
    }

    /// The value at this path, once it satisfies the condition.
    pub(crate) async fn until(&self, path: &str, condition: impl Fn(&Value) -> bool) -> Value {
        let read = read_until(
            self.address,
            |call| self.signed(call),
            ("/api/events", path),
            condition,
        );
        match tokio::time::timeout(DEADLINE, read).await {
            Ok(found) => found,
            Err(_) => panic!(
                "no expected value of {path} in time: {}",
                self.get(path).await
            ),
        }
    }

    pub(crate) async fn until_status(&self, id: &str, status: &str) -> Value {
        self.until(&format!("/api/tasks/{id}"), |task| task["status"] == status)
            .await
    }
}
