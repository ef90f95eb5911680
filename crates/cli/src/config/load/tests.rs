use super::*;

fn variables(pairs: &[(&str, &str)]) -> Sources {
    let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    Sources {
        variables: pairs.iter().map(owned).collect(),
        ..Sources::default()
    }
}

fn file(text: &str) -> (tempfile::NamedTempFile, Sources) {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), text).unwrap();
    let sources = Sources {
        file: Some(file.path().to_owned()),
        ..Sources::default()
    };
    (file, sources)
}

#[track_caller]
fn refused(sources: &Sources) -> String {
    format!("{:#}", load(sources).unwrap_err())
}

#[track_caller]
fn file_refused(text: &str) -> String {
    let (_file, sources) = file(text);
    refused(&sources)
}

#[test]
fn flags_override_variables_override_the_file_overrides_defaults() {
    let (_file, mut sources) =
        file("[worker]\nslots = 2\ndrain = \"5s\"\n[http]\nconnections = 7\n");
    sources.variables = variables(&[
        ("LONGHAUL_WORKER__SLOTS", "3"),
        ("LONGHAUL_LISTEN", "127.0.0.1:1"),
    ])
    .variables;
    let config = load(&sources).unwrap();
    assert_eq!((config.worker.slots, config.http.connections), (3, 7));
    assert_eq!(
        (
            config.worker.drain.as_millis(),
            config.maintenance.lease.as_millis()
        ),
        (5_000, 30_000)
    );
    let flagged = load(
        &sources
            .flag("worker.slots", Some(4))
            .flag("http.listen", Some("127.0.0.1:2")),
    )
    .unwrap();
    assert_eq!((flagged.worker.slots, flagged.http.listen.port()), (4, 2));
}

#[test]
fn an_unknown_key_is_named_with_the_nearest_one() {
    let error = file_refused("[worker]\nslotz = 2\n");
    assert!(
        error.contains("worker.slotz is not a key; did you mean worker.slots?"),
        "{error}"
    );
    let error = file_refused("[workers]\nslots = 2\n");

    assert!(
        error.contains("workers.slots is not a key; did you mean worker.slots?"),
        "{error}"
    );
    let error = file_refused("[[routing.rules]]\nqueue = \"a\"\ntiers = \"vip\"\n");

    assert!(
        error.contains("routing.rules.0.tiers is not a key; did you mean routing.rules.*.tier?"),
        "{error}"
    );
    let error = refused(&variables(&[("LONGHAUL_HTTP__LISTNE", "x")]));

    assert!(
        error.contains("http.listne, which is not a key; did you mean http.listen?"),
        "{error}"
    );
    let error = refused(&variables(&[("LONGHAUL_STROE", "sqlite://x")]));
    assert!(error.contains("did you mean LONGHAUL_STORE?"), "{error}");
}

#[test]
fn variables_of_other_programs_are_ignored() {
    let others = [
        ("LONGHAUL_SERVICE_HOST", "10.0.0.1"),
        ("LONGHAUL_PORT", "tcp://10.0.0.1:80"),
        ("LONGHAUL_TOKEN", "x"),
    ];
    load(&variables(&others)).unwrap();
}

#[test]
fn an_empty_variable_is_not_set() {
    let names = [
        "LONGHAUL_STORE",
        "LONGHAUL_LISTEN",
        "LONGHAUL_WORKER__SLOTS",
        "LONGHAUL_ARTIFACTS__KEY",
    ];

    let config = load(&variables(&names.map(|name| (name, "")))).unwrap();
    assert_eq!(
        (
            config.store.url.scheme(),
            config.http.listen.port(),
            config.worker.slots
        ),
        ("sqlite", 7080, 100)
    );
}

/// A file, and what its error must contain.
const WRONG_FILES: &[(&str, &str)] = &[
    ("[worker]\ndrain = \"soon\"\n", "worker.drain"),
    ("[worker]\ndrain = \"soon\"\n", "allowed: 30s"),
    ("[worker]\nslots = \"many\"\n", "worker.slots"),
    ("[identity]\nmode = \"open\"\n", "identity.mode"),
    (
        "[identity]\ntrusted_from = [\"everywhere\"]\n",
        "identity.trusted_from",
    ),
    (
        "[identity]\nhosts = [\"https://a\"]\n",
        "identity.hosts: hosts has \"https://a\"",
    ),
    (
        "[identity]\ngateway_secret = \"short\"\n",
        "identity.gateway_secret",
    ),
    ("[http]\nbody_bytes = 5\n", "http.body_bytes is 5"),
    ("[http]\nlisten = \"here\"\n", "http.listen"),
    ("[limits.\"openai/gpt-4\"]\nburst = 3\n", "rate"),
    ("[log]\nlevel = \"a=b=c\"\n", "log.level"),
    ("[worker]\nslots = 0\n", "worker.slots"),
    ("[worker]\nheartbeat = \"0s\"\n", "worker.heartbeat is 0"),
    (
        "[worker]\npoll_least = \"2s\"\n",
        "worker.poll_least is longer than worker.poll_most",
    ),
    (
        "[maintenance]\nrescue_every = \"0ms\"\n",
        "maintenance.rescue_every is 0",
    ),
    ("[http]\nconnections = 0\n", "http.connections is 0"),
    (
        "[worker.queues.a]\nreserved = 101\n",
        "reserve 101 slots, and worker.slots is 100",
    ),
    (
        "[worker.queues.a]\nreserved = 3\nat_most = 2\n",
        "worker.queues.a.at_most is 2; allowed: at least 3",
    ),
    ("[worker.queues.\"a b\"]\nreserved = 3\n", "worker.queues"),
    (
        "[worker.queues.a]\nshare = 0\n",
        "worker.queues.a.share is 0; allowed: 1 to 1000",
    ),
    ("[redis]\nnodes = 0\n", "redis.nodes is 0"),
    ("[broker]\nlanes = \"streams\"\n", "classic"),
    (
        "[[events.external]]\nevents = [\"done\"]\n",
        "events.external names \"done\"; allowed: submitted",
    ),
    (
        "[[events.external]]\nevents = [\"progress\"]\n",
        "names progress, which is for live listeners only",
    ),
    (
        "[[events.external]]\nevents = [\"completed\"]\n",
        "events.external needs a broker, and broker.url is local",
    ),
    ("[routing]\notherwise = \"\"\n", "routing"),
    ("[limits.openai]\nrate = 0\n", "limits"),
    (
        "[identity]\nenvironment = \"Live!\"\n",
        "identity.environment",
    ),
    ("[artifacts]\nurl = \"file://\"\n", "only file://folder"),
    (
        "[telemetry]\notlp_endpoint = \"collector:4318\"\n",
        "telemetry.otlp_endpoint",
    ),
];

#[test]
fn a_value_that_does_not_fit_is_refused_with_its_key() {
    for (text, wanted) in WRONG_FILES {
        let error = file_refused(text);
        assert!(error.contains(wanted), "{text}: {error}");
    }

    let error = refused(&variables(&[("LONGHAUL_WORKER__DRAIN", "soon")]));
    assert!(
        error.contains("LONGHAUL_WORKER__DRAIN") && error.contains("PT30S"),
        "{error}"
    );
    let error = refused(&variables(&[("LONGHAUL_HTTP__ALLOW_PLAIN", "yes")]));
    assert!(error.contains("true or false"), "{error}");
}

#[test]
fn an_unsupported_server_is_refused_with_the_supported_ones() {
    for (name, value, wanted) in [
        (
            "LONGHAUL_BROKER",
            "kafka://u:s3cret@mq",
            "allowed: local, amqp://",
        ),
        (
            "LONGHAUL_REDIS",
            "memcached://u:s3cret@cache",
            "allowed: redis://",
        ),
        ("LONGHAUL_ARTIFACTS", "s3://u:s3cret@bucket", "only file://"),
        ("LONGHAUL_STORE", "oracle://u:s3cret@db", "sqlite://"),
    ] {
        let error = refused(&variables(&[(name, value)]));
        assert!(
            error.contains(wanted) && !error.contains("s3cret"),
            "{error}"
        );
    }

    assert!(
        load(&variables(&[
            ("LONGHAUL_REDIS", ""),
            ("LONGHAUL_BROKER", "local")
        ]))
        .is_ok()
    );
}

#[test]
fn a_value_of_the_wrong_type_is_not_shown() {
    for text in [
        "[worker]\nslots = \"s3cret\"\n",
        "[identity]\ngateway_secret = 5355\n",
        "[artifacts]\nkey = [\"s3cret\"]\n",
        "[store]\nurl = 5355\n",
        "[http]\nallow_plain = \"s3cret\"\n",
        "[worker]\ndrain = 5355\n",
    ] {
        let error = file_refused(text);
        let is_shown = error.contains("s3cret") || error.contains("5355");
        assert!(error.contains("does not fit") && !is_shown, "{error}");
    }

    for name in ["LONGHAUL_WORKER__SLOTS", "LONGHAUL_HTTP__ALLOW_PLAIN"] {
        let error = refused(&variables(&[(name, "s3cret")]));
        assert!(error.contains(name) && !error.contains("s3cret"), "{error}");
    }
}

#[test]
fn no_error_and_no_debug_output_shows_a_password() {
    let broken = file_refused("[store]\nurl = \"postgres://u:s3cret@db\n");
    assert!(
        broken.contains("not TOML") && !broken.contains("s3cret"),
        "{broken}"
    );
    let config = load(&variables(&[(
        "LONGHAUL_STORE",
        "postgres://u:s3cret@db/x",
    )]))
    .unwrap();
    assert_eq!(config.store.url.reveal(), "postgres://u:s3cret@db/x");
    assert!(!format!("{config:?} {}", config.store.url).contains("s3cret"));
}

#[test]
fn sections_with_names_of_the_operator_are_read() {
    let (_file, sources) = file(
        "[worker.queues.vip_short]\nreserved = 4\n\
         [worker.types]\n\"sample.sleep\" = 2\n\
         [limits.\"openai/gpt-4.1\"]\nrate = 60\nper = \"1m\"\n\
         [limits.default]\nrate = 5\nburst = 2\n\
         [[routing.rules]]\ntier = \"vip\"\nat_most = \"30s\"\nqueue = \"fast\"\n",
    );
    let config = load(&sources).unwrap();
    let worker = config.worker_settings("host", true);

    assert_eq!(
        (
            worker.queues[0].reserved,
            worker.queues[0].at_most,
            worker.types["sample.sleep"]
        ),
        (4, None, 2)
    );

    let limits = config.limit_rules();
    let model = limits.limits["openai/gpt-4.1"];
    assert_eq!(
        (
            model.permits,
            model.per_ms,
            model.burst,
            limits.limits.len()
        ),
        (60, 60_000, 1, 1)
    );

    assert_eq!(
        limits.default.map(|limit| (limit.permits, limit.burst)),
        Some((5, 2))
    );
    assert_eq!(config.routing().unwrap().queues(), ["fast", "free_default"]);
}

#[test]
fn an_address_that_is_not_loopback_needs_consent() {
    let at = |mode: &str, listen: &str, plain: &str| {
        let pairs = [
            ("LONGHAUL_IDENTITY__MODE", mode),
            ("LONGHAUL_LISTEN", listen),
            ("LONGHAUL_HTTP__ALLOW_PLAIN", plain),
        ];
        load(&variables(&pairs)).unwrap().check_listening()
    };
    assert!(at("dev", "127.0.0.1:0", "false").is_ok() && at("tokens", "[::1]:0", "false").is_ok());

    assert!(
        at("tokens", "0.0.0.0:0", "false")
            .unwrap_err()
            .to_string()
            .contains("http.allow_plain")
    );

    assert!(
        at("dev", "0.0.0.0:0", "true")
            .unwrap_err()
            .to_string()
            .contains("identity.mode")
    );

    assert!(
        at("tokens", "0.0.0.0:0", "true").is_ok() && at("trusted-header", "[::]:0", "true").is_ok()
    );
}

#[test]
fn the_nearest_name_is_found() {
    let known = ["worker.slots", "worker.name", "http.listen"];
    assert_eq!(nearest("worker.slot", known), Some(("worker.slots", 1)));
    assert_eq!(nearest("http.lisetn", known), Some(("http.listen", 1)));
    assert_eq!(nearest("worker.slots", known), Some(("worker.slots", 0)));
    assert_eq!(nearest("x", []), None);
}
