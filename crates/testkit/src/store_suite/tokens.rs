//! Access tokens: their fields, their end, and their last use.

use std::sync::Arc;

use longhaul_domain::{
    AccessToken, NewAccessToken, TokenStanding,
    access_token::{KEEP_ENDED_MS, TOUCH_EVERY_MS, TokenDigest},
    bounds,
};

use super::{
    case::{Case, cases},
    strange_input::STRANGE,
    support::{HOUR_MS, refused_field, with},
};
use crate::fixture::Fixture;

pub(super) fn cases() -> Vec<Case> {
    cases![
        a_token_is_found_by_its_id_with_all_fields,
        a_token_can_be_created_twice_but_its_id_not_reused,
        a_token_expires_by_the_stores_clock,
        a_second_revocation_does_not_change_the_time,
        the_last_use_is_updated_at_most_once_a_minute,
        tokens_are_listed_by_id_in_pages,
        only_tokens_that_ended_long_ago_are_pruned,
        invalid_tokens_are_refused_by_field,
        strange_owners_and_names_of_tokens_are_stored_exactly,
    ]
}

fn new_token(id: &str) -> NewAccessToken {
    NewAccessToken {
        id: id.to_owned(),
        prefix: format!("lh_live_{id}"),
        digest: TokenDigest([7; 32]),
        owner: "u-1".to_owned(),
        tier: Some("vip".to_owned()),
        scopes: vec!["tasks:read".to_owned(), "tasks:write".to_owned()],
        name: "ci".to_owned(),
        ttl_ms: HOUR_MS,
    }
}

impl Fixture {
    async fn token(&self, id: &str) -> AccessToken {
        self.store
            .find_token(id)
            .await
            .unwrap()
            .expect("the token is known")
            .token
    }
}

async fn a_token_is_found_by_its_id_with_all_fields(fixture: Arc<Fixture>) {
    let new = new_token("a1");
    let made = fixture.store.create_token(&new).await.unwrap();
    let known = fixture.store.find_token("a1").await.unwrap().unwrap();
    assert_eq!((&known.token, known.digest), (&made, new.digest));
    assert!(known.seen_at >= made.created_at);
    assert_eq!(
        (&made.owner, &made.tier, &made.scopes),
        (&new.owner, &new.tier, &new.scopes)
    );

    assert_eq!((&made.name, &made.prefix), (&new.name, &new.prefix));
    assert_eq!(made.expires_at, made.created_at.plus_ms(HOUR_MS));
    assert_eq!((made.last_used_at, made.revoked_at), (None, None));
    let plain = NewAccessToken {
        tier: None,
        ..new_token("A1")
    };

    assert_eq!(fixture.store.create_token(&plain).await.unwrap().tier, None);
    assert_eq!(fixture.store.find_token("a2").await.unwrap(), None);
    assert_eq!(fixture.token("a1").await, made, "ids differ by case");
}

async fn a_token_can_be_created_twice_but_its_id_not_reused(fixture: Arc<Fixture>) {
    let made = fixture.store.create_token(&new_token("a1")).await.unwrap();
    fixture.clock.advance_ms(1_000);
    assert_eq!(
        fixture.store.create_token(&new_token("a1")).await.unwrap(),
        made
    );
    let other = NewAccessToken {
        digest: TokenDigest([8; 32]),
        owner: "u-2".to_owned(),
        ..new_token("a1")
    };

    assert_eq!(
        refused_field(fixture.store.create_token(&other).await),
        "tokenId"
    );
    assert_eq!(fixture.token("a1").await, made);
}

async fn a_token_expires_by_the_stores_clock(fixture: Arc<Fixture>) {
    fixture.store.create_token(&new_token("a1")).await.unwrap();
    let standing = async || {
        let known = fixture.store.find_token("a1").await.unwrap().unwrap();
        known.token.standing(known.seen_at)
    };

    assert_eq!(standing().await, TokenStanding::Good);
    fixture.clock.advance_ms(HOUR_MS);
    assert_eq!(standing().await, TokenStanding::Expired);
}

async fn a_second_revocation_does_not_change_the_time(fixture: Arc<Fixture>) {
    fixture.store.create_token(&new_token("a1")).await.unwrap();
    let other = fixture.store.create_token(&new_token("b1")).await.unwrap();
    let revoked = fixture.store.revoke_token("a1").await.unwrap().unwrap();
    assert!(revoked.revoked_at.is_some());
    fixture.clock.advance_ms(1_000);
    assert_eq!(
        fixture.store.revoke_token("a1").await.unwrap(),
        Some(revoked.clone())
    );

    assert_eq!(
        (fixture.token("a1").await, fixture.token("b1").await),
        (revoked, other)
    );
    assert_eq!(fixture.store.revoke_token("c1").await.unwrap(), None);
}

async fn the_last_use_is_updated_at_most_once_a_minute(fixture: Arc<Fixture>) {
    fixture.store.create_token(&new_token("a1")).await.unwrap();
    fixture.store.touch_token("a1").await.unwrap();
    let first = fixture
        .token("a1")
        .await
        .last_used_at
        .expect("the first use is stored");

    fixture.clock.advance_ms(TOUCH_EVERY_MS / 2);
    fixture.store.touch_token("a1").await.unwrap();
    assert_eq!(fixture.token("a1").await.last_used_at, Some(first));
    fixture.clock.advance_ms(TOUCH_EVERY_MS / 2);
    fixture.store.touch_token("a1").await.unwrap();
    assert!(fixture.token("a1").await.last_used_at >= Some(first.plus_ms(TOUCH_EVERY_MS)));
    fixture.store.touch_token("unknown").await.unwrap();
}

async fn only_tokens_that_ended_long_ago_are_pruned(fixture: Arc<Fixture>) {
    let long = |id| NewAccessToken {
        ttl_ms: 3 * KEEP_ENDED_MS,
        ..new_token(id)
    };

    for new in [
        new_token("short"),
        new_token("other"),
        long("revoked"),
        long("good"),
    ] {
        fixture.store.create_token(&new).await.unwrap();
    }

    fixture.store.revoke_token("revoked").await.unwrap();
    assert_eq!(fixture.store.prune_tokens(10).await.unwrap(), 0);
    fixture.clock.advance_ms(KEEP_ENDED_MS);
    assert_eq!(
        fixture.store.prune_tokens(10).await.unwrap(),
        1,
        "only the revoked token; the others expired an hour later"
    );
    assert_eq!(fixture.store.find_token("revoked").await.unwrap(), None);

    fixture.clock.advance_ms(HOUR_MS);
    assert_eq!(fixture.store.prune_tokens(1).await.unwrap(), 1);
    assert_eq!(fixture.store.prune_tokens(10).await.unwrap(), 1);
    assert_eq!(fixture.store.prune_tokens(10).await.unwrap(), 0);
    assert!(fixture.store.find_token("good").await.unwrap().is_some());
}

async fn tokens_are_listed_by_id_in_pages(fixture: Arc<Fixture>) {
    assert_eq!(fixture.store.list_tokens(None, 10).await.unwrap(), []);
    for id in ["b", "a", "C", "d"] {
        fixture.store.create_token(&new_token(id)).await.unwrap();
    }

    fixture.store.revoke_token("d").await.unwrap();
    let ids = async |after, limit| {
        let page = fixture.store.list_tokens(after, limit).await.unwrap();
        page.into_iter().map(|token| token.id).collect::<Vec<_>>()
    };

    assert_eq!(
        ids(None, 3).await,
        ["C", "a", "b"],
        "capitals come first in every database"
    );
    assert_eq!(
        ids(Some("b"), 3).await,
        ["d"],
        "revoked tokens are listed too"
    );

    assert_eq!(
        refused_field(fixture.store.list_tokens(None, 0).await),
        "limit"
    );
    assert_eq!(
        refused_field(fixture.store.list_tokens(None, bounds::PAGE_SIZE + 1).await),
        "limit"
    );
}

async fn invalid_tokens_are_refused_by_field(fixture: Arc<Fixture>) {
    let token = |change: fn(&mut NewAccessToken)| with(new_token("a1"), change);
    let long_scope = || vec!["tasks:read tasks:write".to_owned()];
    let many_scopes = || vec!["operate".to_owned(); 21];
    let invalid = [
        ("tokenId", token(|token| token.id = "a b".to_owned())),
        ("prefix", token(|token| token.prefix = String::new())),
        ("userId", token(|token| token.owner = String::new())),
        (
            "tier",
            token(|token| token.tier = Some("a tier".to_owned())),
        ),
        (
            "name",
            token(|token| token.name = "x".repeat(bounds::NAME_BYTES + 1)),
        ),
        ("scopes", token(|token| token.scopes = Vec::new())),
        (
            "scopes",
            with(new_token("a1"), |token| token.scopes = long_scope()),
        ),
        (
            "scopes",
            with(new_token("a1"), |token| token.scopes = many_scopes()),
        ),
        ("expires", token(|token| token.ttl_ms = 0)),
        (
            "expires",
            token(|token| token.ttl_ms = bounds::DURATION_MS + 1),
        ),
    ];

    for (field, token) in invalid {
        let answer = fixture.store.create_token(&token).await;
        assert_eq!(refused_field(answer), field);
    }

    assert_eq!(fixture.store.list_tokens(None, 10).await.unwrap(), []);
}

async fn strange_owners_and_names_of_tokens_are_stored_exactly(fixture: Arc<Fixture>) {
    for (n, text) in STRANGE.iter().enumerate() {
        let owner = (*text).to_owned();
        let name = (*text).to_owned();
        fixture
            .store
            .create_token(&NewAccessToken {
                owner,
                name,
                ..new_token(&format!("t{n}"))
            })
            .await
            .unwrap();

        let found = fixture.token(&format!("t{n}")).await;
        assert_eq!((found.owner.as_str(), found.name.as_str()), (*text, *text));
    }

    for id in STRANGE {
        assert_eq!(fixture.store.find_token(id).await.unwrap(), None, "{id:?}");
    }
}
