//! `longhaul token`: the tokens of callers, made and revoked where the store is. There is no way to make one over HTTP.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::Path;

use anyhow::{Context as _, bail, ensure};
use longhaul::{
    operating::{
        AccessToken, NewAccessToken, SqlStore, Store as _, TokenStanding, TokenText, WireDuration,
        bounds,
    },
    server::Scope,
};
use serde_json::{Value, json};

use super::{config_file::ConfigFile, node::make_folder};
use crate::{
    client::{Screen, clean},
    config::{self, Config},
    random,
};

/// What `token` can be told.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  longhaul token create --owner u-1 --scopes tasks:read,tasks:write --expires 90d --name ci
  longhaul token list
  longhaul token revoke 1a2b3c4d")]
pub struct Token {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Makes a token and shows it this once.
    Create(Create),
    /// Lists all tokens, without their secrets.
    List(List),
    /// Revokes a token for good; nodes refuse it within 5 seconds.
    Revoke(Revoke),
}

#[derive(Debug, clap::Args)]
struct Create {
    #[command(flatten)]
    config: ConfigFile,
    /// Whose tasks it is for.
    #[arg(long)]
    owner: String,
    /// What it may do, separated by commas: tasks:read, tasks:write, operate, admin.
    #[arg(long, value_delimiter = ',', default_value = "tasks:read,tasks:write")]
    scopes: Vec<String>,
    /// The tier of all tasks that are submitted with it: free, vip, enterprise, or one of the routing's own.
    #[arg(long)]
    tier: Option<String>,
    /// How long it is good for.
    #[arg(long, default_value = "90d")]
    expires: WireDuration,
    /// What it is for, for people.
    #[arg(long, default_value = "unnamed")]
    name: String,
    /// Answers with JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
struct List {
    #[command(flatten)]
    config: ConfigFile,
    /// Answers with JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
struct Revoke {
    #[command(flatten)]
    config: ConfigFile,
    /// The token as the list shows it, or its id alone, the third part: lh_live_ID
    id: String,
}

pub async fn run(token: Token) -> anyhow::Result<()> {
    match token.action {
        Action::Create(create) => make(create).await,
        Action::List(list) => show(list).await,
        Action::Revoke(revoke) => end(revoke).await,
    }
}

async fn make(create: Create) -> anyhow::Result<()> {
    let config = config::load(&create.config.sources())?;
    for scope in &create.scopes {
        let known = Scope::ALL.map(Scope::as_str);
        ensure!(
            known.contains(&scope.as_str()),
            "there is no scope {scope:?}; allowed: {}",
            known.join(", ")
        );
    }
    let text = TokenText::mint(&config.identity.environment, random::byte)?;
    let new = NewAccessToken {
        id: text.id().to_owned(),
        prefix: text.prefix().to_owned(),
        digest: text.digest(),
        owner: create.owner,
        tier: create.tier,
        scopes: create.scopes,
        name: create.name,
        ttl_ms: create.expires.as_millis(),
    };
    let (store, screen) = (open(&config).await?, Screen::new(true));
    let made = store.create_token(&new).await?;
    if let Some(told) = new
        .tier
        .as_deref()
        .and_then(|tier| no_rule_for(&config, tier))
    {
        writeln!(std::io::stderr(), "{told}")?;
    }
    store.close().await;
    if create.json {
        let mut answer = view(&made, TokenStanding::Good);
        answer["token"] = json!(text.reveal());
        return Ok(screen.line(answer)?);
    }
    screen.line(text.reveal())?;
    // Beside the token, so that a script that takes it finds nothing else.
    let (id, until) = (&made.id, written(made.expires_at));
    let told = format!(
        "Shown this once. Its id is {id}, it is good until {until}; send it as: Authorization: Bearer …"
    );
    Ok(writeln!(std::io::stderr(), "{told}")?)
}

/// What is said of a tier that the routing here does not know; other nodes may.
fn no_rule_for(config: &Config, tier: &str) -> Option<String> {
    let known: BTreeSet<&str> = config
        .routing
        .rules
        .iter()
        .filter_map(|rule| rule.tier.as_deref())
        .collect();
    let otherwise = &config.routing.otherwise;
    let names: Vec<&str> = known.iter().copied().collect();
    let is_known = tier == "free" || known.contains(tier);
    (!is_known).then(|| {
        format!(
            "No rule of the routing is for the tier {tier:?}: its tasks go to {otherwise}. Rules are for {}.",
            names.join(", ")
        )
    })
}

async fn show(list: List) -> anyhow::Result<()> {
    let config = config::load(&list.config.sources())?;
    let store = open(&config).await?;
    let now = store.now().await?;
    let mut tokens: Vec<AccessToken> = Vec::new();
    loop {
        let after = tokens.last().map(|token| token.id.clone());
        let page = store
            .list_tokens(after.as_deref(), bounds::PAGE_SIZE)
            .await?;
        let is_last = page.len() < bounds::PAGE_SIZE;
        tokens.extend(page);
        if is_last {
            break;
        }
    }
    store.close().await;
    tokens.sort_by_key(|token| token.created_at);
    let screen = Screen::new(true);
    if list.json {
        let views: Vec<Value> = tokens
            .iter()
            .map(|token| view(token, token.standing(now)))
            .collect();
        return Ok(screen.line(Value::from(views))?);
    }
    if tokens.is_empty() {
        return Ok(screen.hint("There is no token: longhaul token create --owner u-1")?);
    }
    let mut table = screen.table(&[
        "TOKEN",
        "NAME",
        "OWNER",
        "TIER",
        "SCOPES",
        "STATE",
        "EXPIRES",
        "LAST USED",
    ]);
    for token in &tokens {
        table.add_row([
            token.prefix.clone(),
            clean(&token.name),
            clean(&token.owner),
            clean(token.tier.as_deref().unwrap_or("")),
            token.scopes.join(","),
            state(token.standing(now)).to_owned(),
            written(token.expires_at),
            token.last_used_at.map_or("never".to_owned(), written),
        ]);
    }
    Ok(screen.show(table)?)
}

async fn end(revoke: Revoke) -> anyhow::Result<()> {
    let config = config::load(&revoke.config.sources())?;
    // A whole token may be pasted, too, or its beginning as the list shows it. Nothing of it is repeated but the id.
    let is_pasted = revoke.id.starts_with("lh_");
    let id = revoke
        .id
        .split('_')
        .nth(2)
        .filter(|_| is_pasted)
        .unwrap_or(&revoke.id);
    let store = open(&config).await?;
    let revoked = store.revoke_token(id).await?;
    store.close().await;
    let Some(token) = revoked else {
        bail!("there is no token with the id {id:?}; longhaul token list has them all")
    };
    let (name, owner) = (clean(&token.name), clean(&token.owner));
    Ok(Screen::new(true).line(format_args!(
        "revoked {} ({name}, of {owner})",
        token.prefix
    ))?)
}

/// The store, beside whoever works with it. A schema that is not current is brought up to date where that is wanted.
async fn open(config: &Config) -> anyhow::Result<SqlStore> {
    let url = config.store.url.reveal();
    let failed = || format!("{} cannot be opened", config.store.url);
    if let Some(folder) = config.store_file().as_deref().and_then(Path::parent) {
        make_folder(folder)?;
    }
    let mut options = config.store_options();
    options.is_beside = true;
    let store = SqlStore::connect(url, options).await.with_context(failed)?;
    if config.store.migrate && !store.schema().await?.pending.is_empty() {
        store.close().await;
        // Only the one process that has a file may change its schema.
        let alone = SqlStore::connect(url, config.store_options())
            .await
            .with_context(failed)?;
        alone.migrate().await?;
        return Ok(alone);
    }
    store.check_schema().await?;
    Ok(store)
}

fn view(token: &AccessToken, standing: TokenStanding) -> Value {
    json!({
        "id": token.id,
        "prefix": token.prefix,
        "owner": token.owner,
        "tier": token.tier,
        "scopes": token.scopes,
        "name": token.name,
        "state": state(standing),
        "createdAt": written(token.created_at),
        "expiresAt": written(token.expires_at),
        "lastUsedAt": token.last_used_at.map(written),
        "revokedAt": token.revoked_at.map(written),
    })
}

fn written(at: longhaul::Timestamp) -> String {
    longhaul::operating::Moment(at).to_string()
}

const fn state(standing: TokenStanding) -> &'static str {
    match standing {
        TokenStanding::Good => "good",
        TokenStanding::Expired => "expired",
        TokenStanding::Revoked => "revoked",
    }
}
