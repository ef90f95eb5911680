//! `deploy/kubernetes`: what an API server would refuse, and what it would accept by mistake.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use libtest_mimic::Trial;
use longhaul_cli::config::Config;
use serde_json::{Value, json};

use super::{accepts, configured, documents, root, stop_takes, texts};
use crate::trial::plain;

pub(super) fn trials() -> Vec<Trial> {
    plain![
        every_file_is_listed_and_every_object_has_a_unique_name,
        pods_use_valid_options_and_variables,
        pods_have_probes_and_time_to_drain,
        pods_have_only_the_rights_they_need,
        selectors_match_pods_and_ports
    ]
}

const FOLDER: &str = "deploy/kubernetes";

/// Which API each kind is of.
const KINDS: [(&str, &str); 6] = [
    ("ConfigMap", "v1"),
    ("PersistentVolumeClaim", "v1"),
    ("Service", "v1"),
    ("Deployment", "apps/v1"),
    ("Job", "batch/v1"),
    ("PodDisruptionBudget", "policy/v1"),
];

fn resources() -> Vec<String> {
    let set = documents(&format!("{FOLDER}/kustomization.yaml")).remove(0);
    texts(&set["resources"])
        .into_iter()
        .map(str::to_owned)
        .collect()
}

fn objects() -> Vec<Value> {
    resources()
        .iter()
        .flat_map(|file| documents(&format!("{FOLDER}/{file}")))
        .collect()
}

fn of_kind(kind: &str) -> Vec<Value> {
    objects()
        .into_iter()
        .filter(|object| object["kind"] == kind)
        .collect()
}

fn name(object: &Value) -> String {
    object["metadata"]["name"]
        .as_str()
        .expect("a name")
        .to_owned()
}

/// Deployments and jobs, with the one container of their pods.
fn pods() -> Vec<(String, Value, Value)> {
    let all = of_kind("Deployment").into_iter().chain(of_kind("Job"));
    let one = |object: Value| {
        let spec = &object["spec"]["template"]["spec"];
        let containers = spec["containers"].as_array().expect("containers");
        assert_eq!(containers.len(), 1, "{}", name(&object));
        (name(&object), spec.clone(), containers[0].clone())
    };

    all.map(one).collect()
}

fn every_file_is_listed_and_every_object_has_a_unique_name() {
    let there = std::fs::read_dir(root().join(FOLDER)).unwrap();
    let there = there.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned());
    let there: BTreeSet<String> = there.filter(|file| file != "kustomization.yaml").collect();
    assert_eq!(there, resources().into_iter().collect());
    let mut names = BTreeSet::new();

    for object in objects() {
        let kind = object["kind"].as_str().expect("a kind");
        assert!(
            KINDS.contains(&(kind, object["apiVersion"].as_str().expect("an API"))),
            "{kind}"
        );
        assert!(
            names.insert((kind.to_owned(), name(&object))),
            "{kind} {} is there twice",
            name(&object)
        );

        assert!(
            object["metadata"]["namespace"].is_null(),
            "the namespace is chosen when it is applied"
        );
        assert_ne!(
            kind, "Secret",
            "secrets are referred to, never written here"
        );
    }

    assert!(names.len() >= 9, "{names:?}");
}

/// A valid value for a key of the secret.
fn secret(key: &str) -> &'static str {
    match key {
        "store-url" => "postgres://longhaul:x@db/longhaul",
        "broker-url" => "amqps://longhaul:x@broker/longhaul",
        "redis-url" => "rediss://:x@redis/0",
        "artifacts-key" => "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
        other => panic!("the head of kustomization.yaml does not make the key {other}"),
    }
}

/// The configuration of a pod.
fn configuration(container: &Value) -> Config {
    let mut variables = BTreeMap::new();
    for source in container["envFrom"].as_array().expect("variables") {
        let map = source["configMapRef"]["name"]
            .as_str()
            .expect("a ConfigMap");
        let map = of_kind("ConfigMap")
            .into_iter()
            .find(|object| name(object) == map)
            .expect("the ConfigMap");
        for (name, value) in map["data"].as_object().expect("data") {
            variables.insert(
                name.clone(),
                value.as_str().expect("a text in quotes").to_owned(),
            );
        }
    }

    for one in container["env"].as_array().expect("variables") {
        let from = &one["valueFrom"];
        assert!(one["value"].is_null(), "{one}");
        let value = match from["secretKeyRef"]["key"].as_str() {
            Some(key) => {
                assert_eq!(from["secretKeyRef"]["name"], "longhaul");
                secret(key)
            }
            None => {
                assert_eq!(from["fieldRef"]["fieldPath"], "metadata.name");
                "longhaul-worker-7d9f-x2x"
            }
        };

        variables.insert(
            one["name"].as_str().expect("a name").to_owned(),
            value.to_owned(),
        );
    }

    configured(&variables).unwrap()
}

fn pods_use_valid_options_and_variables() {
    let set = documents(&format!("{FOLDER}/kustomization.yaml")).remove(0);
    let deployments = of_kind("Deployment");
    let workers = deployments
        .iter()
        .find(|object| name(object) == "longhaul-worker")
        .expect("workers");
    let workers = workers["spec"]["replicas"].as_u64();

    for (name, _, container) in pods() {
        accepts(&texts(&container["args"])).unwrap();
        let config = configuration(&container);
        assert!(
            config.broker.url.scheme() == "amqps" && config.redis.url.is_some(),
            "{name}"
        );
        assert_eq!(
            Some(u64::from(config.redis.nodes)),
            workers,
            "{name} divides limits by the workers"
        );

        assert_eq!(container["image"], set["images"][0]["name"], "{name}");
    }
}

fn pods_have_probes_and_time_to_drain() {
    for object in of_kind("Deployment") {
        let name = name(&object);
        let spec = &object["spec"]["template"]["spec"];
        let container = &spec["containers"][0];
        let port = &container["ports"][0];

        let listens = configuration(container).http.listen.port();
        assert_eq!(
            (&port["name"], port["containerPort"].as_u64()),
            (&json!("http"), Some(listens.into())),
            "{name}"
        );

        for (probe, path) in [
            ("startupProbe", "/healthz"),
            ("livenessProbe", "/healthz"),
            ("readinessProbe", "/readyz"),
        ] {
            assert_eq!(
                container[probe]["httpGet"],
                json!({ "path": path, "port": "http" }),
                "{name} {probe}"
            );
        }

        let grace = Duration::from_secs(
            spec["terminationGracePeriodSeconds"]
                .as_u64()
                .expect("a grace"),
        );
        let mut needed = stop_takes(&configuration(container));

        if !texts(&container["args"]).concat().contains("worker") {
            needed -= configuration(container).worker.drain.0;
        }

        let rest: u64 = texts(&container["lifecycle"]["preStop"]["exec"]["command"])
            .get(1)
            .map_or(0, |text| text.parse().unwrap());
        assert!(
            grace > needed + Duration::from_secs(rest),
            "{name}: {grace:?} for {needed:?} and {rest} s before it"
        );
    }
}

fn pods_have_only_the_rights_they_need() {
    for (name, spec, container) in pods() {
        let pod = &spec["securityContext"];
        assert!(
            pod["runAsNonRoot"] == true && pod["runAsUser"] == 10_001,
            "{name}: the user of the image"
        );
        assert_eq!(pod["seccompProfile"]["type"], "RuntimeDefault", "{name}");
        assert!(
            spec["automountServiceAccountToken"] == false && spec["enableServiceLinks"] == false,
            "{name}"
        );

        let own = &container["securityContext"];
        assert!(
            own["allowPrivilegeEscalation"] == false && own["readOnlyRootFilesystem"] == true,
            "{name}"
        );
        assert_eq!(own["capabilities"]["drop"], json!(["ALL"]), "{name}");

        let resources = &container["resources"];
        assert!(
            resources["limits"]["memory"].is_string() && resources["requests"]["cpu"].is_string(),
            "{name}"
        );
        let volumes: BTreeMap<String, &Value> = spec["volumes"]
            .as_array()
            .expect("volumes")
            .iter()
            .map(|volume| (volume["name"].as_str().unwrap().to_owned(), volume))
            .collect();

        for mount in container["volumeMounts"].as_array().expect("mounts") {
            assert!(
                volumes.contains_key(mount["name"].as_str().unwrap()),
                "{name}: {mount}"
            );
        }

        let claim = &volumes["artifacts"]["persistentVolumeClaim"]["claimName"];
        assert!(
            of_kind("PersistentVolumeClaim")
                .iter()
                .any(|object| object["metadata"]["name"] == *claim),
            "{name}"
        );
    }
}

fn selectors_match_pods_and_ports() {
    let deployments = of_kind("Deployment");
    let labels = |object: &Value| object["spec"]["template"]["metadata"]["labels"].clone();
    let fits = |selector: &Value, object: &Value| {
        let wanted = selector.as_object().expect("a selector");
        !wanted.is_empty()
            && wanted
                .iter()
                .all(|(key, value)| labels(object)[key] == *value)
    };

    for object in &deployments {
        let selector = &object["spec"]["selector"]["matchLabels"];
        let others = deployments
            .iter()
            .filter(|other| fits(selector, other))
            .count();
        assert!(fits(selector, object) && others == 1, "{}", name(object));
    }

    for service in of_kind("Service") {
        let behind: Vec<&Value> = deployments
            .iter()
            .filter(|other| fits(&service["spec"]["selector"], other))
            .collect();
        assert_eq!(behind.len(), 1, "{}", name(&service));

        let port = &service["spec"]["ports"][0]["targetPort"];
        assert_eq!(
            *port,
            behind[0]["spec"]["template"]["spec"]["containers"][0]["ports"][0]["name"]
        );
    }

    for budget in of_kind("PodDisruptionBudget") {
        let spec = &budget["spec"];
        let behind: Vec<&Value> = deployments
            .iter()
            .filter(|other| fits(&spec["selector"]["matchLabels"], other))
            .collect();
        assert_eq!(behind.len(), 1, "{}", name(&budget));

        let replicas = behind[0]["spec"]["replicas"].as_u64().expect("how many");
        let least = spec["minAvailable"]
            .as_u64()
            .unwrap_or(replicas - spec["maxUnavailable"].as_u64().unwrap_or(0));
        assert!(
            least >= 1 && least < replicas,
            "{}: {least} of {replicas}",
            name(&budget)
        );
    }

    assert_eq!(of_kind("PodDisruptionBudget").len(), deployments.len());
}
