//! `longhaul token`: creates, lists and revokes tokens of callers. It works on the store directly:
//! HTTP has no way to create a token.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::Path;

use anyhow::{Context as _, bail, ensure};
use longhaul::{
    operating::{
        AccessToken, NewAccessToken, SqlStore, TaskReads, TokenStanding, TokenText, Tokens,
        WireDuration, bounds,
    },
    server::Scope,
};
use rand::RngExt as _;
use serde_json::{Value, json};

use super::{config_file::ConfigFile, node::make_folder};
use crate::{
    client::{Screen, clean},
    config::{self, Config},
};

/// Options of `longhaul token`.
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
    /// Create a token and show it, this once.
    Create(Create),
    /// List all tokens, without their secrets.
    List(List),
    /// Revoke a token for good; nodes refuse it within 5 seconds.
    Revoke(Revoke),
}

#[derive(Debug, clap::Args)]
struct Create {
    #[command(flatten)]
    config: ConfigFile,
    /// The user whose tasks it is for.
    #[arg(long)]
    owner: String,
    /// What it may do, separated by commas: tasks:read, tasks:write, operate, admin.
    #[arg(long, value_delimiter = ',', default_value = "tasks:read,tasks:write")]
    scopes: Vec<String>,
    /// The tier of all tasks submitted with it: free, vip, enterprise, or another one that the
    /// routing has rules for.
    #[arg(long)]
    tier: Option<String>,
    /// How long it is valid.
    #[arg(long, default_value = "90d")]
    expires: WireDuration,
    /// A name that says what it is for.
    #[arg(long, default_value = "unnamed")]
    name: String,
    /// Print JSON, for scripts.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
struct List {
    #[command(flatten)]
    config: ConfigFile,
    /// Print JSON, for scripts.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
struct Revoke {
    #[command(flatten)]
    config: ConfigFile,
    /// The token as the list shows it, or its id alone, as in lh_live_ID
    id: String,
}

pub async fn run(token: Token) -> anyhow::Result<()> {
    match token.action {
        Action::Create(options) => create(options).await,
        Action::List(options) => list(options).await,
        Action::Revoke(options) => revoke(options).await,
    }
}

async fn create(options: Create) -> anyhow::Result<()> {
    let config = config::load(&options.config.sources())?;
    check_scopes(&options.scopes)?;

    let text = TokenText::mint(&config.identity.environment, || rand::rng().random())?;
    let new = NewAccessToken {
        id: text.id().to_owned(),
        prefix: text.prefix().to_owned(),
        digest: text.digest(),
        owner: options.owner,
        tier: options.tier,
        scopes: options.scopes,
        name: options.name,
        ttl_ms: options.expires.as_millis(),
    };
    let store = open(&config).await?;
    let created = store.create_token(&new).await?;
    store.close().await;

    if let Some(tier) = &new.tier
        && let Some(warning) = no_rule_for(&config, tier)
    {
        writeln!(std::io::stderr(), "{warning}")?;
    }

    let screen = Screen::new(true);
    if options.json {
        let mut answer = view(&created, TokenStanding::Good);
        answer["token"] = json!(text.reveal());
        return Ok(screen.line(answer)?);
    }

    screen.line(text.reveal())?;
    // On standard error, so that a script that reads the output gets the token alone.
    let id = &created.id;
    let until = written(created.expires_at);
    writeln!(
        std::io::stderr(),
        "Shown only once. Its id is {id}, and it is valid until {until}. Send it as: \
         Authorization: Bearer …"
    )?;

    Ok(())
}

fn check_scopes(scopes: &[String]) -> anyhow::Result<()> {
    let known = Scope::ALL.map(Scope::as_str);

    for scope in scopes {
        ensure!(
            known.contains(&scope.as_str()),
            "there is no scope {scope:?}; allowed: {}",
            known.join(", ")
        );
    }

    Ok(())
}

/// A warning if the routing of this node has no rule for a tier; other nodes may have one.
fn no_rule_for(config: &Config, tier: &str) -> Option<String> {
    let rules = &config.routing.rules;
    let known: BTreeSet<&str> = rules
        .iter()
        .filter_map(|rule| rule.tier.as_deref())
        .collect();
    if tier == "free" || known.contains(tier) {
        return None;
    }

    let otherwise = &config.routing.otherwise;
    let known: Vec<&str> = known.into_iter().collect();
    Some(format!(
        "No rule of the routing is for the tier {tier:?}: its tasks go to {otherwise}. Rules are \
         for {}.",
        known.join(", ")
    ))
}

async fn list(options: List) -> anyhow::Result<()> {
    let config = config::load(&options.config.sources())?;
    let store = open(&config).await?;
    let now = store.now().await?;
    let mut tokens = all_tokens(&store).await?;
    store.close().await;

    tokens.sort_by_key(|token| token.created_at);
    let screen = Screen::new(true);
    if options.json {
        let views = tokens.iter().map(|token| view(token, token.standing(now)));
        return Ok(screen.line(Value::from_iter(views))?);
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

async fn all_tokens(store: &SqlStore) -> anyhow::Result<Vec<AccessToken>> {
    let mut tokens: Vec<AccessToken> = Vec::new();

    loop {
        let after = tokens.last().map(|token| token.id.clone());
        let page = store
            .list_tokens(after.as_deref(), bounds::PAGE_SIZE)
            .await?;
        let is_last = page.len() < bounds::PAGE_SIZE;

        tokens.extend(page);
        if is_last {
            return Ok(tokens);
        }
    }
}

async fn revoke(options: Revoke) -> anyhow::Result<()> {
    let config = config::load(&options.config.sources())?;
    let id = id_of(&options.id);

    let store = open(&config).await?;
    let revoked = store.revoke_token(id).await?;
    store.close().await;

    let Some(token) = revoked else {
        bail!("there is no token with the id {id:?}; longhaul token list shows all")
    };
    let name = clean(&token.name);
    let owner = clean(&token.owner);
    Ok(Screen::new(true).line(format_args!(
        "revoked {} ({name}, of {owner})",
        token.prefix
    ))?)
}

/// The id in what was typed: an id, a token as the list shows it, or by mistake a whole token, of
/// which no error may repeat the secret.
fn id_of(typed: &str) -> &str {
    if !typed.starts_with("lh_") {
        return typed;
    }

    typed.split('_').nth(2).unwrap_or(typed)
}

/// Opens the store beside the nodes that use it. Migrates an old schema if the configuration says
/// so.
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
        // Only a process that has a SQLite file alone may change its schema.
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
