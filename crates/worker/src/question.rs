//! Questions that a handler asks while it runs and whose answer must be of this moment (R50): may this user use that
//! picture, what is this setting now. Whoever knows answers in the same process; no answer is kept.
//!
//! Questions and answers travel as JSON, so that who asks will not have to be written anew when whoever knows is elsewhere. They have
//! the bounds of all JSON here.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use longhaul_domain::{Invalid, Json, bounds};
use longhaul_engine::TaskInfo;
use serde::{Serialize, de::DeserializeOwned};

use crate::stop::{AnyError, Stop};

/// How long an answer is waited for: a handler that waits holds its slot.
const ANSWERED_WITHIN: Duration = Duration::from_secs(10);

/// What a handler may ask with [`Job::ask`](crate::Job::ask). The type is the question, its fields what it is about.
pub trait Question: Serialize + DeserializeOwned + Send + 'static {
    /// The name that whoever asks and whoever answers agree on.
    const NAME: &'static str;
    /// What comes back.
    type Answer: Serialize + DeserializeOwned + Send + 'static;
}

/// Why there is no answer although somebody was asked.
#[derive(Debug, thiserror::Error)]
#[error("{question} was not answered within {ANSWERED_WITHIN:?}")]
struct Unanswered {
    question: &'static str,
}

type Answering =
    dyn Fn(Json, Arc<TaskInfo>) -> BoxFuture<'static, Result<Json, Stop>> + Send + Sync;

/// Who answers which question in this process.
#[derive(Clone, Default)]
pub(crate) struct Answers(BTreeMap<&'static str, Arc<Answering>>);

impl fmt::Debug for Answers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

impl Answers {
    /// Has `answer` called with each question of this type and the task that asks.
    pub(crate) fn add<Q, F, Fut, E>(&mut self, answer: F) -> Result<(), Invalid>
    where
        Q: Question,
        F: Fn(Q, Arc<TaskInfo>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Q::Answer, E>> + Send + 'static,
        E: Into<AnyError>,
    {
        bounds::check_label("question", Q::NAME)?;
        if self.0.contains_key(Q::NAME) {
            let problem = format!("{:?} is answered twice", Q::NAME);
            return Err(Invalid::new(
                "question",
                problem,
                "one who answers for each name",
            ));
        }
        let answering =
            move |question: Json, asker: Arc<TaskInfo>| -> BoxFuture<'static, Result<Json, Stop>> {
                let answered = question.read().map(|question| answer(question, asker));
                Box::pin(async move {
                    let answer = answered.map_err(unreadable)?.await.map_err(Stop::unknown)?;
                    Json::from_value("answer", &answer)
                        .map_err(|error| Stop::invalid("invalid_answer", error))
                })
            };
        self.0.insert(Q::NAME, Arc::new(answering));
        Ok(())
    }

    /// The answer, or how the handler ends without one: an error of whoever answers means what the task's type says of it.
    pub(crate) async fn ask<Q: Question>(
        &self,
        question: &Q,
        asker: Arc<TaskInfo>,
    ) -> Result<Q::Answer, Stop> {
        let Some(answering) = self.0.get(Q::NAME) else {
            let problem = format!(
                "nobody in this process answers {:?}; Builder::answer says who does",
                Q::NAME
            );
            return Err(Stop::invalid("unanswered", problem));
        };
        let question = Json::from_value("question", question).map_err(unreadable)?;
        let answered = tokio::time::timeout(ANSWERED_WITHIN, answering(question, asker)).await;
        let answer = answered.map_err(|_| Stop::retryable(Unanswered { question: Q::NAME }))??;
        answer
            .read()
            .map_err(|error| Stop::invalid("invalid_answer", error))
    }
}

fn unreadable(error: impl Into<AnyError>) -> Stop {
    Stop::invalid("invalid_question", error)
}
