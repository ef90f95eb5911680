//! Tokens: every route against every kind of invalid token, scopes, tiers, live routes, revocation.

use std::time::Duration;

use libtest_mimic::Trial;
use longhaul::{
    TaskId,
    operating::{NewAccessToken, TokenText, bounds},
    server::{Gateway, IdentityMode, ListenerSettings, Network, Policy, route_table},
};
use longhaul_cli::samples::Echo;
use serde_json::json;

use crate::database::Backend;
use crate::trial::on_every_store;
use crate::{
    access::{MISSING, call_of, is_signed},
    client::{Call, DEADLINE, Reply},
    server::Server,
};

pub(crate) fn trials() -> Vec<Trial> {
    on_every_store![
        every_route_refuses_every_invalid_token,
        each_scope_of_a_token_grants_exactly_its_own_routes,
        a_token_sees_only_its_owners_tasks,
        the_tier_of_a_token_is_the_tier_of_its_tasks,
        asking_for_a_better_tier_is_refused,
        a_tier_comes_from_the_gateway_or_a_tier_source,
        a_token_in_the_query_string_works_on_live_routes_only,
        a_revoked_token_is_refused_within_seconds_and_its_streams_end
    ]
}

const ALL: [&str; 3] = ["tasks:read", "tasks:write", "operate"];

const DAY: Duration = Duration::from_secs(24 * 3_600);

/// Bytes that differ for each token of a test.
pub(crate) fn mint(seed: u64) -> TokenText {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let draw = move || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };

    TokenText::mint("test", draw).unwrap()
}

impl Server {
    pub(crate) async fn with_tokens(store: Backend) -> Self {
        Self::start_with(store, IdentityMode::Tokens, ListenerSettings::default()).await
    }

    pub(crate) async fn token(
        &self,
        seed: u64,
        owner: &str,
        scopes: &[&str],
        tier: Option<&str>,
        ttl_ms: u64,
    ) -> TokenText {
        let text = mint(seed);
        let new = NewAccessToken {
            id: text.id().to_owned(),
            prefix: text.prefix().to_owned(),
            digest: text.digest(),
            owner: owner.to_owned(),
            tier: tier.map(str::to_owned),
            scopes: scopes.iter().map(|scope| (*scope).to_owned()).collect(),
            name: "test".to_owned(),
            ttl_ms,
        };

        self.longhaul
            .engine()
            .tokens()
            .create_token(&new)
            .await
            .unwrap();
        text
    }
}

pub(crate) fn with(call: Call, token: &TokenText) -> Call {
    call.header("Authorization", &format!("Bearer {}", token.reveal()))
}

#[track_caller]
fn challenged(reply: Reply, code: &str) {
    assert!(
        reply.headers["www-authenticate"].starts_with("Bearer"),
        "{reply:?}"
    );
    reply.problem(401, code);
}

async fn every_route_refuses_every_invalid_token(store: Backend) {
    let server = Server::with_tokens(store).await;
    let hour = 3_600_000;
    let good = server.token(1, "u-1", &ALL, None, hour).await;
    let revoked = server.token(2, "u-1", &ALL, None, hour).await;
    server
        .longhaul
        .engine()
        .tokens()
        .revoke_token(revoked.id())
        .await
        .unwrap();

    let expired = server.token(3, "u-1", &ALL, None, 1).await;
    let unknown = mint(4);
    let mut mistyped = good.reveal().to_owned();
    let last = if mistyped.ends_with('a') { 'b' } else { 'a' };
    mistyped.pop();
    mistyped.push(last);

    for route in route_table().into_iter().filter(|route| !is_signed(route)) {
        let call = || call_of(&route, MISSING);
        if is_signed(&route) {
            continue; // Its signed URL is the permission.
        }
        if route.policy == Policy::Public {
            assert_eq!(server.send(call()).await.status, 200, "{route:?}");
            continue;
        }

        challenged(server.send(call()).await, "token_missing");
        challenged(
            server
                .send(call().header("Authorization", "Bearer garbage"))
                .await,
            "token_malformed",
        );

        challenged(
            server
                .send(call().header("Authorization", &format!("Bearer {mistyped}")))
                .await,
            "token_mistyped",
        );

        challenged(server.send(with(call(), &revoked)).await, "token_revoked");
        challenged(server.send(with(call(), &expired)).await, "token_expired");
        let twice = with(with(call(), &good), &good);
        challenged(server.send(twice).await, "token_missing");
    }

    challenged(
        server.send(with(Call::get("/api/tasks"), &unknown)).await,
        "token_unknown",
    );
}

async fn each_scope_of_a_token_grants_exactly_its_own_routes(store: Backend) {
    let server = Server::with_tokens(store).await;
    let mut tokens = Vec::new();
    for (seed, scope) in (10..).zip(ALL) {
        tokens.push((
            scope,
            server.token(seed, "u-1", &[scope], None, 3_600_000).await,
        ));
    }

    for route in route_table() {
        let Policy::Needs(needed) = route.policy else {
            continue;
        };

        for (scope, token) in &tokens {
            if *scope == needed.as_str() && route.path == "/api/events" {
                continue; // A stream that is open does not end.
            }

            let reply = server.send(with(call_of(&route, MISSING), token)).await;
            assert_eq!(
                reply.status == 403,
                *scope != needed.as_str(),
                "{route:?} with {scope}: {reply:?}"
            );

            if reply.status == 403 {
                let problem = reply.problem(403, "forbidden");
                assert!(
                    problem["detail"]
                        .as_str()
                        .unwrap()
                        .contains(needed.as_str()),
                    "{problem}"
                );
            }
        }
    }
}

async fn a_token_sees_only_its_owners_tasks(store: Backend) {
    let server = Server::with_tokens(store).await;
    let one = server.token(20, "u-1", &ALL, None, 3_600_000).await;
    let two = server.token(21, "u-2", &ALL, None, 3_600_000).await;

    let submit = Call::post(
        "/api/tasks",
        &json!({ "taskType": "sample.echo", "delay": "1d" }),
    );

    // The token decides, not the headers of a gateway.
    let made = server
        .send(with(submit.user("u-2"), &one))
        .await
        .expect(202);
    let id = made["taskId"].as_str().unwrap();

    let mine = server
        .send(with(Call::get(format!("/api/tasks/{id}")), &one))
        .await
        .expect(200);
    assert_eq!(mine["userId"], "u-1");

    for route in route_table()
        .iter()
        .filter(|route| route.path.contains("{id}") && !is_signed(route))
    {
        let theirs = server.send(with(call_of(route, id), &two)).await;
        let missing = server.send(with(call_of(route, MISSING), &two)).await;
        assert_eq!(
            (theirs.status, &theirs.text),
            (404, &missing.text),
            "{route:?}"
        );
    }
}

async fn the_tier_of_a_token_is_the_tier_of_its_tasks(store: Backend) {
    let server = Server::with_tokens(store).await;
    let token = server.token(30, "u-1", &ALL, Some("vip"), 3_600_000).await;
    let submit = |tier: Option<&str>| {
        let body = json!({ "taskType": "sample.echo", "delay": "1d", "tier": tier });
        with(Call::post("/api/tasks", &body), &token)
    };

    for tier in [None, Some("vip")] {
        let made = server.send(submit(tier)).await.expect(202);
        let task = server
            .send(with(
                Call::get(format!("/api/tasks/{}", made["taskId"].as_str().unwrap())),
                &token,
            ))
            .await;
        assert_eq!(task.expect(200)["queue"], "vip_short");
    }

    let problem = server
        .send(submit(Some("enterprise")))
        .await
        .problem(422, "invalid_field");
    assert_eq!(
        (
            &problem["field"],
            problem["allowed"].as_str().unwrap().starts_with("vip")
        ),
        (&json!("tier"), true)
    );
}

async fn asking_for_a_better_tier_is_refused(store: Backend) {
    let server = Server::with_tokens(store).await;
    let plain = server
        .token(31, "u-1", &["tasks:write"], None, 3_600_000)
        .await;
    let admin = server.token(32, "u-2", &["admin"], None, 3_600_000).await;
    let submit = |tier: Option<&str>, token| {
        let body = json!({ "taskType": "sample.echo", "delay": "1d", "tier": tier });
        server.send(with(Call::post("/api/tasks", &body), token))
    };

    let problem = submit(Some("vip"), &plain)
        .await
        .problem(422, "invalid_field");
    assert_eq!(problem["field"], "tier");
    assert!(
        problem["allowed"]
            .as_str()
            .unwrap()
            .contains("token create --tier"),
        "{problem}"
    );

    for (tier, token) in [
        (None, &plain),
        (Some("free"), &plain),
        (Some("vip"), &admin),
    ] {
        submit(tier, token).await.expect(202);
    }
}

#[expect(clippy::too_many_lines, reason = "one scenario in its order")]
async fn a_tier_comes_from_the_gateway_or_a_tier_source(store: Backend) {
    let gateway = IdentityMode::TrustedHeader(Gateway::within(Network::LOOPBACK.to_vec()));
    let server = Server::configured(store, gateway, |builder| {
        builder.tier_of(|owner| async move {
            match owner.as_str() {
                "u-1" => Ok(Some("enterprise".to_owned())),
                "u-2" => Ok(None),
                _ => Err("the office is closed"),
            }
        })
    })
    .await;

    let submit = |user: &str, headers: &[(&str, &str)], tier: Option<&str>| {
        let body = json!({ "taskType": "sample.echo", "delay": "1d", "tier": tier });
        let call = headers.iter().fold(
            Call::post("/api/tasks", &body).user(user),
            |call, (name, value)| call.header(name, value),
        );
        server.send(call)
    };

    let queue_of = async |made: Reply| {
        let id = made.expect(202)["taskId"].as_str().unwrap().to_owned();
        let task = server
            .longhaul
            .task(TaskId(id.parse().unwrap()))
            .await
            .unwrap();
        (task.tier.unwrap_or_default(), task.queue.to_string())
    };

    let routed = |tier: &str, queue: &str| (tier.to_owned(), queue.to_owned());
    let vip = [("x-user-tier", "vip")];
    assert_eq!(
        queue_of(submit("u-1", &[], None).await).await,
        routed("enterprise", "enterprise_exclusive")
    );
    assert_eq!(
        queue_of(submit("u-1", &vip, None).await).await,
        routed("vip", "vip_short")
    );

    for user in ["u-2", "u-3"] {
        assert_eq!(
            queue_of(submit(user, &[], None).await).await,
            routed("", "free_default")
        );
        submit(user, &[], Some("vip"))
            .await
            .problem(422, "invalid_field");
    }

    submit("u-1", &[("x-user-tier", "no tier")], None)
        .await
        .problem(401, "unauthenticated");

    // An embedding program names the tier, or a tier source does.
    let longhaul = &server.longhaul;
    let own = longhaul
        .submit::<Echo>(json!(1))
        .owner("u-1")
        .delay(DAY)
        .await
        .unwrap();
    assert_eq!(
        longhaul.task(own.id()).await.unwrap().queue,
        "enterprise_exclusive"
    );

    let said = longhaul
        .submit::<Echo>(json!(1))
        .owner("u-1")
        .tier("free")
        .delay(DAY)
        .await
        .unwrap();
    assert_eq!(
        longhaul.task(said.id()).await.unwrap().queue,
        "free_default"
    );
}

async fn a_token_in_the_query_string_works_on_live_routes_only(store: Backend) {
    let server = Server::with_tokens(store).await;
    let token = server.token(40, "u-1", &ALL, None, 3_600_000).await;
    let query = format!("?access_token={}", token.reveal());
    let mut events = Call::get(format!("/api/events{query}"))
        .follow(server.address)
        .await;
    assert_eq!(events.next().await.unwrap().name, "state");
    challenged(
        server.get(format!("/api/tasks{query}")).await,
        "token_missing",
    );
    challenged(
        server.get("/api/events?access_token=garbage").await,
        "token_malformed",
    );
}

async fn a_revoked_token_is_refused_within_seconds_and_its_streams_end(store: Backend) {
    let server = Server::with_tokens(store).await;
    let token = server
        .token(50, "u-1", &ALL, None, bounds::DURATION_MS)
        .await;
    let mut events = with(Call::get("/api/events"), &token)
        .follow(server.address)
        .await;

    server
        .send(with(Call::get("/api/tasks"), &token))
        .await
        .expect(200);

    let used = server
        .longhaul
        .engine()
        .tokens()
        .find_token(token.id())
        .await
        .unwrap()
        .unwrap()
        .token
        .last_used_at;
    assert!(used.is_some(), "its use is noted");

    server
        .longhaul
        .engine()
        .tokens()
        .revoke_token(token.id())
        .await
        .unwrap();

    let ended = async { while events.next().await.is_some() {} };
    tokio::time::timeout(DEADLINE, ended)
        .await
        .expect("the stream ends in time");
    challenged(
        server.send(with(Call::get("/api/tasks"), &token)).await,
        "token_revoked",
    );
}
