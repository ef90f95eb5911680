//! Questions that a handler asks while it runs, and whose answer must be current: may this user use
//! that picture, what is this setting now. The same process answers. Answers are not stored.
//!
//! Questions and answers are JSON, with the bounds of all JSON here. A handler may therefore run in
//! another process than the code that answers.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use longhaul_domain::{Invalid, Json, TaskInfo, bounds};
use serde::{Serialize, de::DeserializeOwned};

use crate::{
    attempt::AttemptServices,
    stop::{AnyError, Stop},
};

/// How long a handler waits for an answer. It occupies its slot while it waits.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// What a handler may ask with [`Job::ask`](crate::Job::ask). The type is the question, its fields
/// are the details.
pub trait Question: Serialize + DeserializeOwned + Send + 'static {
    /// The name by which question and answer find each other.
    const NAME: &'static str;
    /// The type of the answer.
    type Answer: Serialize + DeserializeOwned + Send + 'static;
}

/// No answer came in time.
#[derive(Debug, thiserror::Error)]
#[error("{question} was not answered within {ANSWER_TIMEOUT:?}")]
struct Unanswered {
    question: String,
}

type AnswerFn = dyn Fn(Json, Arc<TaskInfo>) -> BoxFuture<'static, Result<Json, Stop>> + Send + Sync;

/// The functions that answer questions in this process, by the question's name.
#[derive(Clone, Default)]
pub struct Answers(BTreeMap<&'static str, Arc<AnswerFn>>);

impl fmt::Debug for Answers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

impl Answers {
    /// Registers the function that answers questions of this type. It is given the question and the
    /// task that asks.
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
                "one answer for each question",
            ));
        }

        let answer_json =
            move |question: Json, asker: Arc<TaskInfo>| -> BoxFuture<'static, Result<Json, Stop>> {
                let answering = question.read().map(|question| answer(question, asker));
                Box::pin(async move {
                    let answer = answering
                        .map_err(unreadable)?
                        .await
                        .map_err(Stop::unknown)?;
                    Json::from_value("answer", &answer)
                        .map_err(|error| Stop::invalid("invalid_answer", error))
                })
            };

        self.0.insert(Q::NAME, Arc::new(answer_json));
        Ok(())
    }

    /// The answer to a question. The task's type classifies an error of the function that answers.
    pub async fn answer(
        &self,
        name: &str,
        question: Json,
        asker: Arc<TaskInfo>,
    ) -> Result<Json, Stop> {
        let Some(answer) = self.0.get(name) else {
            let problem = format!(
                "this process does not answer {name:?}; register an answer with Builder::answer"
            );
            return Err(Stop::invalid("unanswered", problem));
        };

        let answered = tokio::time::timeout(ANSWER_TIMEOUT, answer(question, asker)).await;
        answered.unwrap_or_else(|_| {
            Err(Stop::retryable(Unanswered {
                question: name.to_owned(),
            }))
        })
    }
}

/// Asks through the attempt, and reads the answer as the question's type.
pub(crate) async fn ask<Q: Question>(
    attempt: &dyn AttemptServices,
    question: &Q,
) -> Result<Q::Answer, Stop> {
    let question = Json::from_value("question", question).map_err(unreadable)?;
    let answer = attempt.ask(Q::NAME, question).await?;

    answer
        .read()
        .map_err(|error| Stop::invalid("invalid_answer", error))
}

fn unreadable(error: impl Into<AnyError>) -> Stop {
    Stop::invalid("invalid_question", error)
}
