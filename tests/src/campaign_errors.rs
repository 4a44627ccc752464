//! Scenarios of campaigns that do not start: a broker that is absent, refuses the credentials, is
//! not trusted or has no storage; agents that are forbidden, unable or unsuited to take part. Each
//! error is reported soon and in one line, and nothing is started.

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use horolog_campaign::nats::{BrokerOptions, BrokerStore};
use horolog_lab::LabHost;
use serde_json::json;
use tempfile::TempDir;

use crate::campaign_lab::{CampaignTestbed, NatsServer, campaign_id, timer_plan};
use crate::process::{run_to_end, write_secret};
use crate::scenario::{Need, Scenario};
use crate::{campaign_errors, scenarios};

const NATS: &[Need] = &[Need::Root, Need::Peer("nats-server")];
/// Timeout of a command, longer than any refusal takes.
const TIMEOUT: Duration = Duration::from_secs(30);

pub(crate) fn all() -> Vec<Scenario> {
    Vec::from(scenarios!(NATS, campaign_errors:
        an_absent_broker_is_named,
        rejected_credentials_are_reported,
        keys_and_certificates_are_accepted,
        minimal_permissions_are_enough,
        a_broker_without_storage_is_refused,
        jobs_forbidden_by_a_policy_are_not_started,
        unsuitable_agents_are_named,
        the_later_of_two_agents_with_one_name_takes_over,
        an_agent_works_for_one_campaign_at_a_time,
        a_controller_whose_clock_is_wrong_starts_nothing,
    ))
}

/// Runs a command that must exit with status 3, and returns the last line of its stderr.
fn refusal(command: &mut Command) -> Result<String> {
    let output = run_to_end(command, TIMEOUT)?;
    let stderr = String::from_utf8(output.stderr)?;
    ensure!(output.status.code() == Some(3), "{}: {stderr}", output.status);
    Ok(stderr.lines().last().unwrap_or_default().to_owned())
}

/// Returns the command that lists the agents at the broker, with these arguments.
fn list(field: &CampaignTestbed, arguments: &[&str]) -> Result<Command> {
    let mut command = field.lab.client().command(crate::process::binary()?);
    command.args(["campaign", "list", "--nats"]).args(arguments);
    Ok(command)
}

pub(crate) fn an_absent_broker_is_named() -> Result<()> {
    let mut field = CampaignTestbed::without_agents(1, NatsServer::start_open)?;
    field.nats.crash()?;
    let plan = field.directory.path().join("plan.toml");
    fs::write(&plan, timer_plan(1, 1))?;
    let (mut command, _) = field.controller(&[])?;
    let started = Instant::now();
    let output = refusal(command.arg(plan))?;
    ensure!(started.elapsed() < Duration::from_secs(15), "refused after {:?}", started.elapsed());
    let expected = "no NATS server answers at nats://127.0.0.1:4222: connection refused";
    ensure!(output.contains(expected) && output.contains("--nats"), "{output}");
    Ok(())
}

/// Starts a broker with two users, one with a password and one with a key.
fn broker_with_users(host: &LabHost, key: &str) -> Result<NatsServer> {
    NatsServer::start(
        host,
        &format!(
            "authorization {{ users = [{{ user: me, password: right }}, {{ nkey: {key} }}] }}"
        ),
    )
}

pub(crate) fn rejected_credentials_are_reported() -> Result<()> {
    let key = nkeys::KeyPair::new_user();
    let field =
        CampaignTestbed::without_agents(1, |host| broker_with_users(host, &key.public_key()))?;
    let path = |name: &str| field.directory.path().join(name);
    write_secret(&path("wrong"), "wrong")?;
    write_secret(&path("right"), "right\n")?;
    write_secret(&path("seed"), &key.seed()?)?;
    write_secret(&path("other"), &nkeys::KeyPair::new_user().seed()?)?;
    let at = "nats://127.0.0.1:4222";
    let with = |options: &[&str], file: &str| -> Result<Command> {
        let mut command = list(&field, &[&[at], options].concat())?;
        command.arg(path(file));
        Ok(command)
    };
    let user = ["--user", "me", "--password-file"];
    let output = refusal(&mut list(&field, &[at])?)?;
    ensure!(output.contains("requires authentication; add --creds"), "{output}");
    for mut command in [with(&user, "wrong")?, with(&["--nkey"], "other")?] {
        let output = refusal(&mut command)?;
        ensure!(output.contains("refused these credentials"), "{output}");
        ensure!(!output.contains("wrong"), "the error contains the password: {output}");
    }
    for mut command in [with(&user, "right")?, with(&["--nkey"], "seed")?] {
        let output = run_to_end(&mut command, TIMEOUT)?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    // A secret that all users can read is refused.
    fs::write(path("open"), key.seed()?)?;
    let output = refusal(&mut with(&["--nkey"], "open")?)?;
    ensure!(output.contains("run 'chmod o=' on it"), "{output}");
    // An agent with rejected credentials exits at once.
    let log = field.directory.path().join("agent.log");
    let mut agent = crate::campaign_lab::Program::start(&mut field.agent(1, &[])?, log)?;
    ensure!(agent.wait()?.code() == Some(3), "{}", agent.output());
    ensure!(agent.output().contains("requires authentication"), "{}", agent.output());
    Ok(())
}

/// Starts a server with a certificate that also requires one of its clients.
fn broker_with_certificate(host: &LabHost) -> Result<NatsServer> {
    let directory = TempDir::new()?;
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()])?;
    fs::write(directory.path().join("cert.pem"), made.cert.pem())?;
    write_secret(&directory.path().join("key.pem"), &made.signing_key.serialize_pem())?;
    let path = |name: &str| format!("\"{}\"", directory.path().join(name).display());
    let [store, certificate, key] = ["store", "cert.pem", "key.pem"].map(path);
    let configuration = format!(
        "jetstream {{ store_dir: {store} }}\n\
         tls {{ cert_file: {certificate}, key_file: {key}, ca_file: {certificate}, verify: true }}"
    );
    NatsServer::start_bare(host, directory, &configuration)
}

pub(crate) fn keys_and_certificates_are_accepted() -> Result<()> {
    let field = CampaignTestbed::without_agents(1, broker_with_certificate)?;
    let path = |name: &str| field.nats.directory().join(name).display().to_string();
    let (cert, key) = (path("cert.pem"), path("key.pem"));
    let at = "tls://127.0.0.1:4222";
    let output = refusal(&mut list(&field, &[at])?)?;
    ensure!(output.contains("TLS with the NATS server") && output.contains("--ca"), "{output}");
    let output = refusal(&mut list(&field, &[at, "--ca", &cert])?)?;
    ensure!(output.contains("TLS") && output.contains("--cert"), "{output}");
    for at in [at, "nats://127.0.0.1:4222"] {
        let options = [at, "--tls-required", "--ca", &cert, "--cert", &cert, "--key", &key];
        let output = run_to_end(&mut list(&field, &options)?, TIMEOUT)?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    // A server without TLS is refused if TLS is required.
    let plain = CampaignTestbed::without_agents(1, NatsServer::start_open)?;
    let output = refusal(&mut list(&plain, &["nats://127.0.0.1:4222", "--tls-required"])?)?;
    ensure!(
        output.contains("does not support TLS") && output.contains("--tls-required"),
        "{output}"
    );
    Ok(())
}

/// Checks that the permissions in the guide are sufficient for an agent and a controller.
pub(crate) fn minimal_permissions_are_enough() -> Result<()> {
    let rights = r#"authorization { users = [
        { user: agent, password: a, permissions: {
            publish: ["$JS.API.INFO", "$JS.API.STREAM.INFO.*", "$JS.API.STREAM.CREATE.*",
                      "$JS.API.DIRECT.GET.KV_horolog-agents.$KV.horolog-agents.n1",
                      "$JS.API.DIRECT.GET.KV_horolog-orders.$KV.horolog-orders.n1",
                      "$KV.horolog-agents.n1", "horolog.campaign.*.n1", "horolog.progress.*.n1"],
            subscribe: ["_INBOX.horolog-agent.n1.>", "horolog.bell.n1"] } },
        { user: controller, password: c, permissions: {
            publish: ["$JS.API.INFO", "$JS.API.STREAM.INFO.*", "$JS.API.STREAM.CREATE.*",
                      "$JS.API.STREAM.PURGE.HOROLOG", "$JS.API.DIRECT.GET.>",
                      "$JS.API.CONSUMER.CREATE.>", "$JS.API.CONSUMER.DELETE.>", "$JS.FC.>",
                      "$KV.horolog-orders.*", "$KV.horolog-campaigns.*", "horolog.bell.*"],
            subscribe: ["_INBOX.horolog-controller.>", "horolog.progress.>"] } },
    ] }"#;
    let mut field = CampaignTestbed::without_agents(1, |host| NatsServer::start(host, rights))?;
    let path = |name: &str| field.directory.path().join(name).display().to_string();
    let (agent, controller) = (path("agent.password"), path("controller.password"));
    write_secret(agent.as_ref(), "a")?;
    write_secret(controller.as_ref(), "c")?;
    field.start_agent(1, &["--user", "agent", "--password-file", &agent])?;
    let arguments = ["--user", "controller", "--password-file", &controller];
    let mut controller = field.run(&timer_plan(1, 1), &arguments)?;
    let result = field.result(&mut controller, 0)?;
    ensure!(result["parts"][0]["end"] == "done", "{result}");
    let output = controller.output();
    ensure!(output.contains("timer.1: started") && output.contains("accepted"), "{output}");
    let log = fs::read_to_string(field.nats.directory().join("log"))?;
    ensure!(!log.contains("Permissions Violation"), "{log}");
    Ok(())
}

pub(crate) fn a_broker_without_storage_is_refused() -> Result<()> {
    let field = CampaignTestbed::without_agents(1, |host| {
        NatsServer::start_bare(host, TempDir::new()?, "")
    })?;
    let output = refusal(&mut list(&field, &["nats://127.0.0.1:4222"])?)?;
    ensure!(
        output.contains("JetStream is unavailable") && output.contains("--jetstream"),
        "{output}"
    );
    Ok(())
}

pub(crate) fn jobs_forbidden_by_a_policy_are_not_started() -> Result<()> {
    let mut field = CampaignTestbed::without_agents(2, NatsServer::start_open)?;
    let policy = field.directory.path().join("policy.toml");
    fs::write(&policy, "schema = \"horolog.policy/1\"\n[kind.host-timer]\nmax-time = \"1s\"\n")?;
    field.start_agent(1, &[])?;
    let policy = policy.display().to_string();
    field.start_agent(2, &["--policy", &policy])?;
    let mut controller = field.run(&timer_plan(2, 5), &[])?;
    ensure!(controller.wait()?.code() == Some(3), "{}", controller.output());
    let output = controller.output();
    ensure!(
        output.contains("nothing was started: agent n2: ") && output.contains("max-time"),
        "{output}"
    );
    ensure!(!output.contains(": started"), "{output}");
    // The other agent is free again.
    let agent = field.agents.get_mut(&1).context("no agent")?;
    agent.await_output("is finished here")
}

pub(crate) fn unsuitable_agents_are_named() -> Result<()> {
    let mut field = CampaignTestbed::without_agents(2, NatsServer::start_open)?;
    field.start_agent(1, &[])?;
    // The clock of the second agent is compared with a server that is one second off.
    let ahead = field.lab.client().interfaces[1].ipv4;
    let server = crate::process::Server::start(
        field.lab.client(),
        crate::process::Engine::Socket,
        &[(ahead, 1_123).into()],
        &["--test-offset", "1000000000"],
    )?;
    field.start_agent(2, &["--clock-server", &format!("{ahead}:1123")])?;
    let other = json!({ "protocol": 99, "version": "9.9.9", "name": "n9" });
    field.lab.client().run(|| publish_state(&other.to_string()))??;
    let mut controller = field.run(&timer_plan(2, 1), &[])?;
    ensure!(controller.wait()?.code() == Some(3), "{}", controller.output());
    let output = controller.output();
    ensure!(output.contains("n9 (it is horolog 9.9.9, protocol 99, and this is"), "{output}");
    ensure!(output.contains("n2 (its clock is ") && output.contains("ms behind"), "{output}");
    server.end("TERM").map(drop)
}

/// Publishes the state of an agent of an incompatible protocol version.
fn publish_state(state: &str) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let broker = BrokerOptions::unencrypted(vec!["nats://127.0.0.1:4222".to_owned()]);
        let store = BrokerStore::open(
            broker.connect("stranger", "stranger").await?,
            &broker.servers_text(),
            1,
        )
        .await?;
        Ok(store.put_agent(&"n9".parse()?, state.as_bytes().to_vec()).await?)
    })
}

pub(crate) fn the_later_of_two_agents_with_one_name_takes_over() -> Result<()> {
    let mut field = CampaignTestbed::new(1)?;
    let mut first = field.agents.remove(&1).context("no agent")?;
    let state = field.directory.path().join("elsewhere").display().to_string();
    let mut command = field.agent(1, &["--state", &state])?;
    let log = field.directory.path().join("second.log");
    let mut second = crate::campaign_lab::Program::start(&mut command, log)?;
    second.await_output("is ready")?;
    ensure!(first.wait()?.code() == Some(4), "{}", first.output());
    ensure!(first.output().contains("was started later"), "{}", first.output());
    // Two agents cannot share a state directory.
    let output = refusal(&mut field.agent(1, &["--state", &state])?)?;
    ensure!(output.contains("is in use by another agent"), "{output}");
    Ok(())
}

/// Checks that a second controller is refused an agent at once, with the campaign for which it
/// works.
pub(crate) fn an_agent_works_for_one_campaign_at_a_time() -> Result<()> {
    let field = CampaignTestbed::new(1)?;
    let mut first = field.run(&timer_plan(1, 60), &[])?;
    let campaign = campaign_id(&mut first)?;
    first.await_output("timer.1: started")?;
    let plan = field.directory.path().join("plan.toml");
    let mut command = field.lab.client().command(crate::process::binary()?);
    let output = refusal(command.args(["campaign", "run"]).arg(plan))?;
    ensure!(output.contains(&format!("n1 (it is busy with campaign {campaign}; wait")), "{output}");
    // The first campaign is unaffected.
    ensure!(!first.output().contains("timer.1: ended"), "{}", first.output());
    first.signal("INT")?;
    let result = field.result(&mut first, 0)?;
    ensure!(result["parts"][0]["end"] == "abandoned", "{result}");
    Ok(())
}

pub(crate) fn a_controller_whose_clock_is_wrong_starts_nothing() -> Result<()> {
    let field = CampaignTestbed::new(1)?;
    let plan = field.directory.path().join("plan.toml");
    fs::write(&plan, timer_plan(1, 1))?;
    for (wrong, side) in [("-60s", "behind that of"), ("+60s", "ahead of that of")] {
        let (mut command, _) = field.controller(&[&format!("--inject-clock-offset={wrong}")])?;
        let output = run_to_end(command.arg(&plan), TIMEOUT)?;
        let stderr = String::from_utf8(output.stderr)?;
        ensure!(output.status.code() == Some(3), "{}: {stderr}", output.status);
        let last = stderr.lines().last().unwrap_or_default();
        let clock = "nothing was started: this host's clock is ";
        ensure!(last.contains(clock) && last.contains(&format!("{side} agent n1")), "{stderr}");
        ensure!(last.contains("--lead-time") && !stderr.contains(": started"), "{stderr}");
    }
    // A controller whose clock error is less than the lead time may start.
    let mut controller = field.run(&timer_plan(1, 1), &["--inject-clock-offset=-500ms"])?;
    let result = field.result(&mut controller, 0)?;
    ensure!(result["parts"][0]["end"] == "done", "{result}");
    Ok(())
}
