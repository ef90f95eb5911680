//! The client of OpenAI-compatible providers, with a server that behaves like them.

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
            "openai::an_answer_arrives_word_by_word_with_its_cost",
            an_answer_arrives_word_by_word,
        ),
        trial(
            "openai::the_status_decides_the_class_of_an_error",
            the_status_decides_the_class,
        ),
        trial(
            "openai::a_broken_connection_is_retried",
            a_broken_connection,
        ),
        trial("openai::a_silent_provider_times_out", a_silent_provider),
        trial(
            "openai::an_unreachable_provider_is_retried",
            an_unreachable_provider,
        ),
        trial(
            "openai::too_many_requests_cost_no_retry",
            too_many_requests_cost_no_retry,
        ),
        trial(
            "openai::a_refused_key_fails_the_task_and_is_not_shown",
            a_refused_key_fails_the_task,
        ),
    ]
}

async fn ask(upstream: &Upstream, silence: Duration) -> (Vec<Piece>, Option<ProviderError>) {
    let provider = OpenAi::new(upstream.settings(silence)).unwrap();
    let mut pieces = provider.write(Prompt::Summarize("A long scene.".to_owned()));
    let mut received = Vec::new();
    while let Some(piece) = pieces.next().await {
        match piece {
            Ok(piece) => received.push(piece),
            Err(error) => return (received, Some(error)),
        }
    }

    (received, None)
}

const LONG_TIMEOUT: Duration = Duration::from_secs(20);

async fn an_answer_arrives_word_by_word() {
    let upstream = Upstream::start(|_| Answer::Text("It ends well.")).await;
    let (pieces, error) = ask(&upstream, LONG_TIMEOUT).await;
    assert!(error.is_none(), "{error:?}");

    let texts = ["It ", "ends ", "well."].map(|word| Piece::Text(word.to_owned()));
    let cost = Piece::Usage(Usage {
        prompt_tokens: 7,
        completion_tokens: 3,
    });
    assert_eq!(pieces, texts.into_iter().chain([cost]).collect::<Vec<_>>());
    let request = upstream.requests.lock().unwrap()[0].clone();
    assert!(
        request.head.starts_with("POST /v1/chat/completions"),
        "{}",
        request.head
    );
    assert!(request.head.contains("Bearer sk-test"), "{}", request.head);
    assert_eq!(
        (&request.body["model"], &request.body["stream"]),
        (&"small".into(), &true.into())
    );

    assert_eq!(request.prompt(), "A long scene.");
}

async fn the_status_decides_the_class() {
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
        let (pieces, error) = ask(&upstream, LONG_TIMEOUT).await;

        let error = error.unwrap();
        assert_eq!(
            (pieces.len(), error.class()),
            (0, class),
            "{status} {headers}"
        );
        assert!(error.to_string().contains("not like this"), "{error}");
    }
}

async fn a_broken_connection() {
    let upstream = Upstream::start(|_| Answer::Cut("It was ")).await;
    let (pieces, error) = ask(&upstream, LONG_TIMEOUT).await;
    assert_eq!(
        pieces,
        ["It ", "was "].map(|word| Piece::Text(word.to_owned()))
    );
    assert_eq!(error.unwrap().class(), Class::Retryable);
}

async fn a_silent_provider() {
    let upstream = Upstream::start(|_| Answer::Hang("It was ")).await;
    let (_, error) = ask(&upstream, Duration::from_millis(300)).await;
    let error = error.unwrap();
    assert!(matches!(error, ProviderError::TimedOut(_)), "{error}");
    assert_eq!(error.class(), Class::Retryable);
}

async fn an_unreachable_provider() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base_url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let upstream = Upstream {
        base_url,
        requests: std::sync::Arc::default(),
    };
    let (_, error) = ask(&upstream, LONG_TIMEOUT).await;

    assert_eq!(error.unwrap().class(), Class::Retryable);
}

async fn too_many_requests_cost_no_retry() {
    let first = std::sync::atomic::AtomicBool::new(true);
    let upstream = Upstream::start(move |_| {
        if first.swap(false, std::sync::atomic::Ordering::SeqCst) {
            Answer::Status(429, "retry-after-ms: 50\r\n", String::new())
        } else {
            Answer::Text("In short.")
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
