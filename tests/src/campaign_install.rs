//! Installation files of agents: the systemd unit and the Kubernetes manifest. Each is checked by
//! what reads it, as far as available here: systemd's own check, the program that parses the
//! options, and the field names of Kubernetes. References between parts of the manifest must
//! resolve.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tempfile::TempDir;

use crate::process::{TIMEOUT, binary, run_to_end};
use crate::scenario::{Need, Scenario};
use crate::{campaign_install, scenarios};
use yaml::{documents, strings};

mod yaml;

const UNIT: &str = include_str!("../../packaging/horolog-agent.service");
const MANIFEST: &str = include_str!("../../packaging/kubernetes/horolog-agents.yaml");
const INSTALLED: &str = "/usr/bin/horolog";

/// Fields of Kubernetes objects, of the types that the manifest uses. A key that is in none of
/// these is a mistake: the server ignores unknown fields with a warning.
const FIELDS: &[(&str, &str)] = &[
    ("Namespace", "apiVersion kind metadata spec"),
    (
        "ServiceAccount",
        "apiVersion kind metadata secrets imagePullSecrets automountServiceAccountToken",
    ),
    ("ConfigMap", "apiVersion kind metadata data binaryData immutable"),
    ("Secret", "apiVersion kind metadata type data stringData immutable"),
    ("DaemonSet", "apiVersion kind metadata spec"),
    ("metadata", "name namespace labels annotations"),
    ("DaemonSet.spec", "selector template updateStrategy minReadySeconds revisionHistoryLimit"),
    ("selector", "matchLabels matchExpressions"),
    ("updateStrategy", "type rollingUpdate"),
    ("rollingUpdate", "maxSurge maxUnavailable"),
    ("template", "metadata spec"),
    (
        "template.spec",
        "serviceAccountName automountServiceAccountToken hostNetwork hostPID hostIPC dnsPolicy \
         terminationGracePeriodSeconds tolerations nodeSelector affinity priorityClassName \
         restartPolicy imagePullSecrets securityContext initContainers containers volumes",
    ),
    ("tolerations", "key operator value effect tolerationSeconds"),
    (
        "containers",
        "name image imagePullPolicy command args env envFrom ports workingDir securityContext \
         resources volumeMounts livenessProbe readinessProbe startupProbe lifecycle",
    ),
    ("env", "name value valueFrom"),
    ("valueFrom", "fieldRef configMapKeyRef secretKeyRef resourceFieldRef"),
    ("fieldRef", "apiVersion fieldPath"),
    (
        "securityContext",
        "runAsUser runAsGroup runAsNonRoot privileged allowPrivilegeEscalation \
         readOnlyRootFilesystem capabilities seccompProfile",
    ),
    ("capabilities", "add drop"),
    ("resources", "requests limits claims"),
    ("volumeMounts", "name mountPath subPath readOnly mountPropagation"),
    ("volumes", "name configMap secret hostPath emptyDir"),
    ("configMap", "name items defaultMode optional"),
    ("secret", "secretName items defaultMode optional"),
    ("hostPath", "path type"),
    ("emptyDir", "medium sizeLimit"),
];

pub(crate) fn all() -> Vec<Scenario> {
    let mut all = Vec::from(scenarios!(&[], campaign_install:
        the_manifest_has_only_known_fields,
        the_manifest_is_consistent,
        an_agent_accepts_the_installed_options,
    ));
    all.extend(scenarios!(&[Need::Peer("systemd-analyze")], campaign_install:
        systemd_accepts_the_unit,
    ));
    all
}

/// Checks the unit with systemd, unchanged except for the path of the program.
pub(crate) fn systemd_accepts_the_unit() -> Result<()> {
    let directory = TempDir::new()?;
    let verified = |unit: &str| -> Result<String> {
        let path = directory.path().join("horolog-agent.service");
        let own = binary()?.display().to_string();
        fs::write(&path, unit.replace(INSTALLED, &own))?;
        let mut verify = Command::new("systemd-analyze");
        let output = run_to_end(verify.arg("verify").arg(path), TIMEOUT)?;
        Ok(String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let stderr = verified(UNIT)?;
    ensure!(!stderr.contains("horolog-agent"), "{stderr}");
    // The check does report a wrong key.
    let stderr = verified(&UNIT.replace("NoNewPrivileges=", "NoNewPrivilege="))?;
    ensure!(stderr.contains("horolog-agent"), "a wrong key is not reported: {stderr}");
    Ok(())
}

/// Checks that an agent accepts these arguments, with the text `policy` as its policy file.
fn check_accepted(arguments: &[String], policy: &str) -> Result<()> {
    let directory = TempDir::new()?;
    let path = directory.path().join("policy.toml");
    fs::write(&path, policy)?;
    let installed = ["/etc/horolog/policy/policy.toml", "/etc/horolog/policy.toml"];
    let own = |argument: &String| {
        let own = path.display().to_string();
        installed.iter().fold(argument.clone(), |text, name| text.replace(name, &own))
    };
    let mut command = Command::new(binary()?);
    command.args(arguments.iter().map(own)).arg("--show-policy");
    let output = run_to_end(&mut command, TIMEOUT)?;
    ensure!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

pub(crate) fn an_agent_accepts_the_installed_options() -> Result<()> {
    let policy = "schema = \"horolog.policy/1\"\n";
    let after = |text: &str, key: &str| -> Result<String> {
        let line =
            text.lines().find_map(|line| line.trim_start_matches(['#', ' ']).strip_prefix(key));
        Ok(line.with_context(|| format!("no {key}"))?.to_owned())
    };
    let options = after(UNIT, "HOROLOG_AGENT_OPTIONS=")?;
    let line = after(UNIT, "ExecStart=")?.replace("$HOROLOG_AGENT_OPTIONS", &options);
    let words: Vec<_> = line.split_whitespace().skip(1).map(ToOwned::to_owned).collect();
    check_accepted(&words, policy)?;
    let documents = documents(MANIFEST)?;
    let container = container(&documents)?;
    let words = strings(&container["command"]).chain(strings(&container["args"])).skip(1);
    // Substitutes the variables like Kubernetes.
    let filled =
        words.map(|word| word.replace("$(NODE)", "n1").replace("$(NODE_ADDRESS)", "192.0.2.1"));
    let configured_policy = document(&documents, "ConfigMap")?["data"]["policy.toml"].as_str();
    check_accepted(&filled.collect::<Vec<_>>(), configured_policy.context("no policy")?)
}

/// Returns the first document of a kind.
fn document<'a>(documents: &'a [Value], kind: &str) -> Result<&'a Value> {
    documents.iter().find(|one| one["kind"] == kind).with_context(|| format!("no {kind}"))
}

fn container(documents: &[Value]) -> Result<&Value> {
    let pod = &document(documents, "DaemonSet")?["spec"]["template"]["spec"];
    pod["containers"].get(0).context("no container")
}

pub(crate) fn the_manifest_has_only_known_fields() -> Result<()> {
    let documents = documents(MANIFEST)?;
    let versions = [
        ("Namespace", "v1"),
        ("ServiceAccount", "v1"),
        ("ConfigMap", "v1"),
        ("Secret", "v1"),
        ("DaemonSet", "apps/v1"),
    ];
    for (kind, version) in versions {
        ensure!(document(&documents, kind)?["apiVersion"] == version, "{kind}");
    }
    ensure!(documents.len() == versions.len(), "{documents:?}");
    for one in &documents {
        let kind = one["kind"].as_str().context("no kind")?;
        check_fields(one, kind, kind)?;
        // All namespaced objects are in the agents' namespace.
        let namespace = &one["metadata"]["namespace"];
        ensure!(kind == "Namespace" || namespace == "horolog", "{kind}: {namespace}");
    }
    Ok(())
}

/// Checks that an object and those within it have only fields of their type.
fn check_fields(value: &Value, kind: &str, path: &str) -> Result<()> {
    let fields: BTreeMap<_, _> = FIELDS.iter().copied().collect();
    match value {
        Value::Array(items) => items.iter().try_for_each(|item| check_fields(item, kind, path)),
        Value::Object(object) => {
            // Maps with arbitrary keys, such as labels, are not in the table.
            let Some(names) = fields.get(kind) else { return Ok(()) };
            for (name, value) in object {
                ensure!(
                    names.split_whitespace().any(|one| one == name),
                    "{path}: unknown field {name}"
                );
                let inner = match (kind, name.as_str()) {
                    ("DaemonSet" | "template", "spec") => format!("{kind}.spec"),
                    // Maps of quantities or texts with arbitrary keys.
                    ("resources" | "ConfigMap" | "Secret", _) => "any".to_owned(),
                    _ => name.clone(),
                };
                let inner = if name == "metadata" { "metadata" } else { &inner };
                check_fields(value, inner, &format!("{path}.{name}"))?;
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Checks that references between the objects of the manifest resolve, and that the paths in
/// arguments are mounted.
pub(crate) fn the_manifest_is_consistent() -> Result<()> {
    let documents = documents(MANIFEST)?;
    let set = document(&documents, "DaemonSet")?;
    let template = &set["spec"]["template"];
    let pod = &template["spec"];
    ensure!(set["spec"]["selector"]["matchLabels"] == template["metadata"]["labels"]);
    let name =
        |kind: &str| Ok::<_, anyhow::Error>(&document(&documents, kind)?["metadata"]["name"]);
    ensure!(&pod["serviceAccountName"] == name("ServiceAccount")?);
    ensure!(name("Namespace")? == "horolog");
    let container = container(&documents)?;
    let image = container["image"].as_str().context("no image")?;
    ensure!(image.ends_with(concat!(":", env!("CARGO_PKG_VERSION"))), "{image}");
    // Each volume is mounted, and each mount has a volume.
    let named = |list: &Value| -> Vec<String> {
        let names = list.as_array().into_iter().flatten().map(|one| one["name"].to_string());
        let mut names: Vec<_> = names.collect();
        names.sort();
        names
    };
    ensure!(named(&pod["volumes"]) == named(&container["volumeMounts"]));
    for argument in strings(&container["args"]) {
        let Some((_, path)) = argument.split_once("=/") else { continue };
        check_mounted(&documents, pod, container, &format!("/{path}"))
            .with_context(|| argument.to_owned())?;
    }
    Ok(())
}

/// Checks that a path in the container is a mount point, or a key of the object mounted there.
fn check_mounted(documents: &[Value], pod: &Value, container: &Value, path: &str) -> Result<()> {
    let mounts = container["volumeMounts"].as_array().context("no mounts")?;
    let mount =
        |at: &Path| mounts.iter().find(|one| one["mountPath"].as_str().map(Path::new) == Some(at));
    let path = Path::new(path);
    if mount(path).is_some() {
        return Ok(());
    }
    let directory = path.parent().context("no directory")?;
    let mount = mount(directory).context("the path is not mounted")?;
    let volumes = pod["volumes"].as_array().context("no volumes")?;
    let volume = volumes.iter().find(|one| one["name"] == mount["name"]).context("no volume")?;
    let (kind, name, keys) = match (&volume["configMap"], &volume["secret"]) {
        (Value::Object(map), _) => ("ConfigMap", &map["name"], "data"),
        (_, Value::Object(secret)) => ("Secret", &secret["secretName"], "stringData"),
        _ => return Ok(()),
    };
    let source = document(documents, kind)?;
    ensure!(&source["metadata"]["name"] == name, "no {kind} is named {name}");
    let key = path.file_name().and_then(|name| name.to_str()).context("no name")?;
    ensure!(source[keys][key].is_string(), "{kind} {name} has no {key}");
    Ok(())
}
