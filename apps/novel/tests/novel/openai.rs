//! The client of OpenAI-compatible providers, against a server that behaves as they do.

use std::time::Duration;

use futures::StreamExt as _;
use libtest_mimic::Trial;
use longhaul::{Class, Status};
use longhaul_novel::provider::{OpenAi, Piece, Prompt, Provider as _, ProviderError, Usage};

use crate::{
    fresh::{Backend, FreshDatabase},
    trial,
    upstream::{Answer, Upstream},
    world::World,
};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial(
            "openai::an_answer_comes_word_by_word_with_its_cost",
            an_answer_comes_word_by_word,
        ),
        trial(
            "openai::what_a_refusal_means_is_told_by_its_status",
            what_a_refusal_means,
        ),
        trial(
            "openai::a_connection_that_breaks_is_worth_a_retry",
            a_connection_that_breaks,
        ),
        trial(
            "openai::a_provider_that_keeps_silent_is_given_up",
            a_provider_that_keeps_silent,
        ),
        trial("openai::nobody_there_is_worth_a_retry", nobody_there),
        trial(
            "openai::too_many_requests_cost_no_retry",
            too_many_requests_cost_no_retry,
        ),
        trial(
            "openai::a_refused_key_fails_the_task_and_is_not_told",
            a_refused_key_fails_the_task,
        ),
    ]
}

async fn asked(upstream: &Upstream, silence: Duration) -> (Vec<Piece>, Option<ProviderError>) {
    let provider = OpenAi::new(upstream.settings(silence)).unwrap();
    let mut pieces = provider.write(Prompt::Summarize("A long scene.".to_owned()));
    let mut got = Vec::new();
    while let Some(piece) = pieces.next().await {
        match piece {
            Ok(piece) => got.push(piece),
            Err(error) => return (got, Some(error)),
        }
    }
    (got, None)
}

const PATIENT: Duration = Duration::from_secs(20);

async fn an_answer_comes_word_by_word() {
    let upstream = Upstream::start(|_| Answer::Words("It ends well.")).await;
    let (pieces, error) = asked(&upstream, PATIENT).await;
    assert!(error.is_none(), "{error:?}");
    let texts = ["It ", "ends ", "well."].map(|word| Piece::Text(word.to_owned()));
    let cost = Piece::Usage(Usage {
        prompt_tokens: 7,
        completion_tokens: 3,
    });
    assert_eq!(pieces, texts.into_iter().chain([cost]).collect::<Vec<_>>());
    let asked = upstream.asked.lock().unwrap()[0].clone();
    assert!(
        asked.head.starts_with("POST /v1/chat/completions"),
        "{}",
        asked.head
    );
    assert!(asked.head.contains("Bearer sk-test"), "{}", asked.head);
    assert_eq!(
        (&asked.body["model"], &asked.body["stream"]),
        (&"small".into(), &true.into())
    );
    assert_eq!(asked.prompt(), "A long scene.");
}

async fn what_a_refusal_means() {
    let limited = |seconds| Class::RateLimited {
        retry_after: Duration::from_secs(seconds),
    };
    let cases = [
        (401, "", Class::Fatal),
        (403, "", Class::Fatal),
        (400, "", Class::Fatal),
        (404, "", Class::Fatal),
        (408, "", Class::Retryable),
        (500, "", Class::Retryable),
        (503, "", Class::Retryable),
        (429, "Retry-After: 7\r\n", limited(7)),
        (429, "retry-after-ms: 3000\r\n", limited(3)),
        (429, "", limited(20)),
        (
            429,
            "Date: Sun, 15 Nov 2026 08:00:00 GMT\r\nRetry-After: Sun, 15 Nov 2026 08:00:09 GMT\r\n",
            limited(9),
        ),
        (
            429,
            "Date: Sun, 15 Nov 2026 08:00:00 GMT\r\nRetry-After: Sun, 15 Nov 2026 07:00:00 GMT\r\n",
            limited(20),
        ),
        (429, "Retry-After: -1\r\n", limited(20)),
        (429, "Retry-After: soon\r\n", limited(20)),
        (429, "Retry-After: 99999999\r\n", limited(3_600)),
    ];
    for (status, headers, class) in cases {
        let body = "{\"error\":{\"message\":\"not like this\"}}".to_owned();
        let upstream =
            Upstream::start(move |_| Answer::Status(status, headers, body.clone())).await;
        let (pieces, error) = asked(&upstream, PATIENT).await;
        let error = error.unwrap();
        assert_eq!(
            (pieces.len(), error.class()),
            (0, class),
            "{status} {headers}"
        );
        assert!(error.to_string().contains("not like this"), "{error}");
    }
}

async fn a_connection_that_breaks() {
    let upstream = Upstream::start(|_| Answer::Cut("It was ")).await;
    let (pieces, error) = asked(&upstream, PATIENT).await;
    assert_eq!(
        pieces,
        ["It ", "was "].map(|word| Piece::Text(word.to_owned()))
    );
    assert_eq!(error.unwrap().class(), Class::Retryable);
}

async fn a_provider_that_keeps_silent() {
    let upstream = Upstream::start(|_| Answer::Hang("It was ")).await;
    let (_, error) = asked(&upstream, Duration::from_millis(300)).await;
    let error = error.unwrap();
    assert!(matches!(error, ProviderError::TimedOut(_)), "{error}");
    assert_eq!(error.class(), Class::Retryable);
}

async fn nobody_there() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base_url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let upstream = Upstream {
        base_url,
        asked: std::sync::Arc::default(),
    };
    let (_, error) = asked(&upstream, PATIENT).await;
    assert_eq!(error.unwrap().class(), Class::Retryable);
}

async fn too_many_requests_cost_no_retry() {
    let first = std::sync::atomic::AtomicBool::new(true);
    let upstream = Upstream::start(move |_| {
        if first.swap(false, std::sync::atomic::Ordering::SeqCst) {
            Answer::Status(429, "retry-after-ms: 50\r\n", String::new())
        } else {
            Answer::Words("In short.")
        }
    })
    .await;
    let world = World::start_with(
        FreshDatabase::make(Backend::Sqlite).await,
        upstream.provider(),
    )
    .await;
    let novel = world.import("One scene.").await;
    let read = world.novel(&novel).await;
    assert_eq!(
        crate::world::summaries(&read),
        [Some("In short.".to_owned())]
    );
    let children = world
        .get(&format!(
            "/api/tasks/{}/children",
            read["taskId"].as_str().unwrap()
        ))
        .expect(200)
        .await;
    let child = world.ended(&children["items"][0]["taskId"]).await;
    assert_eq!(
        (child.retry_count, child.snooze_count, upstream.calls()),
        (0, 1, 2)
    );
    world.stop().await;
}

async fn a_refused_key_fails_the_task() {
    let body = "{\"error\":{\"message\":\"no such key: sk-test\"}}".to_owned();
    let upstream = Upstream::start(move |_| Answer::Status(401, "", body.clone())).await;
    let world = World::start_with(
        FreshDatabase::make(Backend::Sqlite).await,
        upstream.provider(),
    )
    .await;
    let answer = world
        .post("/novel/api/novels")
        .text("One scene.")
        .expect(202)
        .await;
    let task = world.ended(&answer["taskId"]).await;
    assert_eq!(task.status, Status::Failed);
    let children = world
        .get(&format!(
            "/api/tasks/{}/children",
            answer["taskId"].as_str().unwrap()
        ))
        .expect(200)
        .await;
    let child = world.ended(&children["items"][0]["taskId"]).await;
    let error = child.error.unwrap();
    assert_eq!((child.status, upstream.calls()), (Status::Failed, 1));
    assert!(
        error.message.contains("refuses the key") && !format!("{error:?}").contains("sk-test"),
        "{error:?}"
    );
    world.stop().await;
}
