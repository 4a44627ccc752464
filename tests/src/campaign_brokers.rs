//! Scenarios of campaigns and their brokers: one that knows its users by an operator's tokens, and
//! a cluster of three, one of which fails. The tokens are made as by `nsc`.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use horolog_lab::LabHost;
use nkeys::KeyPair;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::campaign_lab::{CampaignTestbed, NATS_PORT, NatsServer, Program, TIMEOUT, timer_plan};
use crate::campaign_nats::check_all_done;
use crate::process::{run_to_end, write_secret};
use crate::scenario::{Need, Scenario, in_path};
use crate::{campaign_brokers, scenarios};

const NATS: &[Need] = &[Need::Root, Need::Peer("nats-server")];

pub(crate) fn all() -> Vec<Scenario> {
    Vec::from(scenarios!(NATS, campaign_brokers:
        account_credentials_are_accepted,
        one_of_three_brokers_may_die,
    ))
}

/// Returns a token about `subject`, signed by `by`.
fn token(by: &KeyPair, subject: &str, nats: &Value, expires: Option<u64>) -> Result<String> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
    let mut claims = json!({
        "jti": "-", "iat": now, "iss": by.public_key(), "sub": subject, "name": subject,
        "nats": nats,
    });
    if let Some(expires) = expires {
        claims["exp"] = json!(expires);
    }
    let header = json!({ "typ": "JWT", "alg": "ed25519-nkey" });
    let encoded = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let text = format!("{}.{}", encoded(&header), encoded(&claims));
    let signature = URL_SAFE_NO_PAD.encode(by.sign(text.as_bytes())?);
    Ok(format!("{text}.{signature}"))
}

/// Returns the claims of an account, with or without permission to use storage.
fn account_claims(keeps: bool) -> Value {
    let room = if keeps { -1 } else { 0 };
    json!({ "type": "account", "version": 2, "limits": {
        "subs": -1, "data": -1, "payload": -1, "imports": -1, "exports": -1, "wildcards": true,
        "conn": -1, "leaf": -1,
        "mem_storage": room, "disk_storage": room, "streams": room, "consumer": room,
    } })
}

/// Writes a credentials file: the token of `user`, signed by the account `by`, and the seed of
/// `key`; `old` makes the token expired.
fn write_credentials(
    path: &Path,
    by: &KeyPair,
    user: &KeyPair,
    key: &KeyPair,
    old: bool,
) -> Result<()> {
    let claims = json!({ "type": "user", "version": 2, "pub": {}, "sub": {}, "subs": -1, "data": -1, "payload": -1 });
    let token = token(by, &user.public_key(), &claims, old.then_some(1))?;
    let text = format!(
        "-----BEGIN NATS USER JWT-----\n{token}\n------END NATS USER JWT------\n\n\
         -----BEGIN USER NKEY SEED-----\n{}\n------END USER NKEY SEED------\n",
        key.seed()?
    );
    write_secret(path, &text)
}

pub(crate) fn account_credentials_are_accepted() -> Result<()> {
    let (operator, system) = (KeyPair::new_operator(), KeyPair::new_account());
    let (own, other) = (KeyPair::new_account(), KeyPair::new_account());
    let claims = json!({ "type": "operator", "version": 2 });
    let operator_token = token(&operator, &operator.public_key(), &claims, None)?;
    let [system_name, own_name] = [&system, &own].map(KeyPair::public_key);
    let system_token = token(&operator, &system_name, &account_claims(false), None)?;
    let own_token = token(&operator, &own_name, &account_claims(true), None)?;
    let configuration = format!(
        "operator: {operator_token}\nsystem_account: {system_name}\nresolver: MEMORY\n\
         resolver_preload: {{ {system_name}: {system_token}, {own_name}: {own_token} }}"
    );
    let mut field =
        CampaignTestbed::without_agents(1, |host| NatsServer::start(host, &configuration))?;
    let path = |name: &str| field.directory.path().join(name);
    let user = KeyPair::new_user();
    write_credentials(&path("right"), &own, &user, &user, false)?;
    write_credentials(&path("foreign"), &other, &user, &user, false)?;
    write_credentials(&path("stolen"), &own, &user, &KeyPair::new_user(), false)?;
    write_credentials(&path("old"), &own, &user, &user, true)?;
    for wrong in ["foreign", "stolen", "old"] {
        let mut list = field.lab.client().command(crate::process::binary()?);
        list.args(["campaign", "list", "--creds"]).arg(path(wrong));
        let output = run_to_end(&mut list, TIMEOUT)?;
        let stderr = String::from_utf8(output.stderr)?;
        ensure!(output.status.code() == Some(3), "{wrong}: {}: {stderr}", output.status);
        let stderr = stderr.trim();
        ensure!(stderr.lines().count() == 1, "{wrong}: {stderr}");
        ensure!(stderr.contains("refused these credentials"), "{wrong}: {stderr}");
    }
    let right = path("right").display().to_string();
    field.start_agent(1, &["--creds", &right])?;
    let mut controller = field.run(&timer_plan(1, 1), &["--creds", &right])?;
    check_all_done(&field.result(&mut controller, 0)?, 1)
}

/// Returns the configuration of one of three servers in a cluster.
fn cluster_configuration(number: u16, store: &Path) -> String {
    let route = |number: u16| format!("\"nats://127.0.0.1:{}\"", 6_222 + number);
    let routes: Vec<_> = (0..3).map(route).collect();
    format!(
        "server_name: s{number}\njetstream {{ store_dir: \"{}\" }}\n\
         cluster {{ name: three, listen: \"127.0.0.1:{}\", routes: [{}] }}",
        store.display(),
        6_222 + number,
        routes.join(", ")
    )
}

/// Starts the first server of the cluster, which belongs to the testbed.
fn start_first_server(host: &LabHost) -> Result<NatsServer> {
    let directory = TempDir::new()?;
    let configuration = cluster_configuration(0, &directory.path().join("store"));
    NatsServer::start_bare(host, directory, &configuration)
}

/// Starts another server of the cluster, and returns it with the path of its log.
fn start_other_server(host: &LabHost, directory: &Path, number: u16) -> Result<(Program, PathBuf)> {
    let (path, log) = (directory.join(format!("s{number}.conf")), format!("s{number}.log"));
    let own = cluster_configuration(number, &directory.join(format!("s{number}")));
    fs::write(&path, format!("listen: \"0.0.0.0:{}\"\n{own}\n", NATS_PORT + number))?;
    let program = in_path("nats-server").context("no nats-server in PATH")?;
    let log = directory.join(log);
    let program = Program::start(host.command(program).arg("-c").arg(path), log.clone())?;
    Ok((program, log))
}

/// Returns true if a server logged that it leads the stream of reports.
fn is_stream_leader(log: &Path) -> bool {
    let output = fs::read_to_string(log).unwrap_or_default();
    output.lines().any(|line| line.contains("new stream leader") && line.contains("> HOROLOG'"))
}

/// Checks that a campaign completes after the leader of the stream of reports is killed during
/// measurement.
pub(crate) fn one_of_three_brokers_may_die() -> Result<()> {
    let mut field = CampaignTestbed::without_agents(2, start_first_server)?;
    let directory = field.directory.path().to_owned();
    let (mut second, second_log) = start_other_server(field.lab.client(), &directory, 1)?;
    let (mut third, third_log) = start_other_server(field.lab.client(), &directory, 2)?;
    second.await_output("Server is ready")?;
    third.await_output("Server is ready")?;
    let at = |address: &str| {
        let all = (0..3).map(|number| format!("nats://{address}:{}", NATS_PORT + number));
        all.collect::<Vec<_>>().join(",")
    };
    let local = at("127.0.0.1");
    // The servers form the cluster before they accept a request.
    let began = Instant::now();
    loop {
        let mut list = field.lab.client().command(crate::process::binary()?);
        list.args(["campaign", "list", "--replicas", "3", "--nats", &local]);
        let output = run_to_end(&mut list, TIMEOUT)?;
        if output.status.success() {
            break;
        }
        let output = String::from_utf8_lossy(&output.stderr);
        ensure!(began.elapsed() < TIMEOUT, "{output}");
        thread::sleep(Duration::from_millis(200));
    }
    for number in [1, 2] {
        let address = field.lab.client().interfaces[number - 1].ipv4.to_string();
        field.start_agent(number, &["--nats", &at(&address), "--replicas", "3"])?;
    }
    let mut controller = field.run(&timer_plan(2, 4), &["--nats", &local, "--replicas", "3"])?;
    controller.await_output("timer.2: started")?;
    if is_stream_leader(&second_log) {
        second.kill()?;
    } else if is_stream_leader(&third_log) {
        third.kill()?;
    } else {
        field.nats.crash()?;
    }
    check_all_done(&field.result(&mut controller, 0)?, 2)
}
