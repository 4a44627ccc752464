//! Scenarios of campaigns that do not begin: a broker that is not there, does not let one in,
//! cannot be trusted or keeps nothing; agents that may not, cannot or should not take part. Each is
//! told in a line, soon, and nothing has been started.

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use horolog_campaign::nats::{Broker, Store};
use horolog_lab::Host;
use libtest_mimic::Trial;
use serde_json::json;
use tempfile::TempDir;

use crate::campaign_lab::{Field, Nats, campaign_of, timers};
use crate::process::{run_to_end, write_secret};
use crate::scenario::Need;
use crate::{campaign_refusals, scenarios};

const NATS: &[Need] = &[Need::Root, Need::Peer("nats-server")];
/// Longer than any refusal takes.
const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) fn all() -> Vec<Trial> {
    Vec::from(scenarios!(NATS, campaign_refusals:
        a_broker_that_is_not_there_is_named,
        who_is_not_let_in_is_told,
        keys_and_certificates_let_one_in,
        the_least_rights_are_enough,
        a_broker_that_keeps_nothing_is_refused,
        what_a_policy_forbids_is_not_started,
        agents_that_do_not_fit_are_named,
        of_two_agents_of_one_name_the_later_one_stays,
        an_agent_works_for_one_campaign_at_a_time,
        a_controller_whose_clock_is_wrong_starts_nothing,
    ))
}

/// What a command says when it ends with status 3.
fn refusal(command: &mut Command) -> Result<String> {
    let output = run_to_end(command, PATIENCE)?;
    let said = String::from_utf8(output.stderr)?;
    ensure!(output.status.code() == Some(3), "{}: {said}", output.status);
    Ok(said.lines().last().unwrap_or_default().to_owned())
}

/// A list of what is at the broker, asked for with these options.
fn list(field: &Field, arguments: &[&str]) -> Result<Command> {
    let mut command = field.lab.client().command(crate::process::binary()?);
    command.args(["campaign", "list", "--nats"]).args(arguments);
    Ok(command)
}

pub(crate) fn a_broker_that_is_not_there_is_named() -> Result<()> {
    let mut field = Field::without_agents(1, Nats::open)?;
    field.nats.go()?;
    let plan = field.directory.path().join("plan.toml");
    fs::write(&plan, timers(1, 1))?;
    let (mut command, _) = field.controller(&[])?;
    let started = Instant::now();
    let said = refusal(command.arg(plan))?;
    ensure!(started.elapsed() < Duration::from_secs(15), "it took {:?}", started.elapsed());
    let expected = "no NATS server answers at nats://127.0.0.1:4222: Connection refused";
    ensure!(said.contains(expected) && said.contains("--nats"), "{said}");
    Ok(())
}

/// A broker that knows a user with a password and one with a key.
fn guarded(host: &Host, key: &str) -> Result<Nats> {
    Nats::start(
        host,
        &format!(
            "authorization {{ users = [{{ user: me, password: right }}, {{ nkey: {key} }}] }}"
        ),
    )
}

pub(crate) fn who_is_not_let_in_is_told() -> Result<()> {
    let key = nkeys::KeyPair::new_user();
    let field = Field::without_agents(1, |host| guarded(host, &key.public_key()))?;
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
    let said = refusal(&mut list(&field, &[at])?)?;
    ensure!(said.contains("lets in only those it knows; say who this is with --creds"), "{said}");
    for mut command in [with(&user, "wrong")?, with(&["--nkey"], "other")?] {
        let said = refusal(&mut command)?;
        ensure!(said.contains("refuses these credentials"), "{said}");
        ensure!(!said.contains("wrong"), "it shows the password: {said}");
    }
    for mut command in [with(&user, "right")?, with(&["--nkey"], "seed")?] {
        let output = run_to_end(&mut command, PATIENCE)?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    // A file that all may read is no secret.
    fs::write(path("open"), key.seed()?)?;
    let said = refusal(&mut with(&["--nkey"], "open")?)?;
    ensure!(said.contains("run 'chmod o=' on it"), "{said}");
    // An agent that is not let in ends at once.
    let log = field.directory.path().join("agent.log");
    let mut agent = crate::campaign_lab::Program::start(&mut field.agent(1, &[])?, log)?;
    ensure!(agent.wait()?.code() == Some(3), "{}", agent.said());
    ensure!(agent.said().contains("lets in only those it knows"), "{}", agent.said());
    Ok(())
}

/// A server with a certificate, which wants one of its clients too.
fn encrypted(host: &Host) -> Result<Nats> {
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
    Nats::bare(host, directory, &configuration)
}

pub(crate) fn keys_and_certificates_let_one_in() -> Result<()> {
    let field = Field::without_agents(1, encrypted)?;
    let path = |name: &str| field.nats.directory().join(name).display().to_string();
    let (cert, key) = (path("cert.pem"), path("key.pem"));
    let at = "tls://127.0.0.1:4222";
    let said = refusal(&mut list(&field, &[at])?)?;
    ensure!(said.contains("TLS with the NATS server") && said.contains("--ca"), "{said}");
    let said = refusal(&mut list(&field, &[at, "--ca", &cert])?)?;
    ensure!(said.contains("TLS") && said.contains("--cert"), "{said}");
    for at in [at, "nats://127.0.0.1:4222"] {
        let options = [at, "--tls-required", "--ca", &cert, "--cert", &cert, "--key", &key];
        let output = run_to_end(&mut list(&field, &options)?, PATIENCE)?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    // One without TLS is no choice where it is required.
    let plain = Field::without_agents(1, Nats::open)?;
    let said = refusal(&mut list(&plain, &["nats://127.0.0.1:4222", "--tls-required"])?)?;
    ensure!(said.contains("has no TLS") && said.contains("--tls-required"), "{said}");
    Ok(())
}

/// What the guide says that an agent and a controller need is all that they need.
pub(crate) fn the_least_rights_are_enough() -> Result<()> {
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
    let mut field = Field::without_agents(1, |host| Nats::start(host, rights))?;
    let path = |name: &str| field.directory.path().join(name).display().to_string();
    let (agent, controller) = (path("agent.password"), path("controller.password"));
    write_secret(agent.as_ref(), "a")?;
    write_secret(controller.as_ref(), "c")?;
    field.start_agent(1, &["--user", "agent", "--password-file", &agent])?;
    let arguments = ["--user", "controller", "--password-file", &controller];
    let mut controller = field.run(&timers(1, 1), &arguments)?;
    let result = field.result(&mut controller, 0)?;
    ensure!(result["parts"][0]["end"] == "done", "{result}");
    let said = controller.said();
    ensure!(said.contains("timer.1: started") && said.contains("accepted"), "{said}");
    let asked = fs::read_to_string(field.nats.directory().join("log"))?;
    ensure!(!asked.contains("Permissions Violation"), "{asked}");
    Ok(())
}

pub(crate) fn a_broker_that_keeps_nothing_is_refused() -> Result<()> {
    let field = Field::without_agents(1, |host| Nats::bare(host, TempDir::new()?, ""))?;
    let said = refusal(&mut list(&field, &["nats://127.0.0.1:4222"])?)?;
    ensure!(said.contains("has no JetStream") && said.contains("--jetstream"), "{said}");
    Ok(())
}

pub(crate) fn what_a_policy_forbids_is_not_started() -> Result<()> {
    let mut field = Field::without_agents(2, Nats::open)?;
    let policy = field.directory.path().join("policy.toml");
    fs::write(&policy, "schema = \"horolog.policy/1\"\n[kind.host-timer]\nmax-time = \"1s\"\n")?;
    field.start_agent(1, &[])?;
    let policy = policy.display().to_string();
    field.start_agent(2, &["--policy", &policy])?;
    let mut controller = field.run(&timers(2, 5), &[])?;
    ensure!(controller.wait()?.code() == Some(3), "{}", controller.said());
    let said = controller.said();
    ensure!(
        said.contains("nothing was started: agent n2: ") && said.contains("max-time"),
        "{said}"
    );
    ensure!(!said.contains(": started"), "{said}");
    // The other one is free again.
    let agent = field.agents.get_mut(&1).context("no agent")?;
    agent.await_said("is over here")
}

pub(crate) fn agents_that_do_not_fit_are_named() -> Result<()> {
    let mut field = Field::without_agents(2, Nats::open)?;
    field.start_agent(1, &[])?;
    // Its clock is compared with one that is not right.
    let ahead = field.lab.client().ports[1].ipv4;
    let server = crate::process::Server::start(
        field.lab.client(),
        crate::process::Engine::Socket,
        &[(ahead, 1_123).into()],
        &["--test-offset", "1000000000"],
    )?;
    field.start_agent(2, &["--clock-server", &format!("{ahead}:1123")])?;
    let other = json!({ "protocol": 99, "version": "9.9.9", "name": "n9" });
    field.lab.client().run(|| announce(&other.to_string()))??;
    let mut controller = field.run(&timers(2, 1), &[])?;
    ensure!(controller.wait()?.code() == Some(3), "{}", controller.said());
    let said = controller.said();
    ensure!(said.contains("n9 (it is horolog 9.9.9, protocol 99, and this is"), "{said}");
    ensure!(said.contains("n2 (its clock is ") && said.contains("ms behind"), "{said}");
    server.end("TERM").map(drop)
}

/// Says at the broker that an agent is there which is of another world.
fn announce(state: &str) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let broker = Broker::plain(vec!["nats://127.0.0.1:4222".to_owned()]);
        let store =
            Store::open(broker.connect("stranger", "stranger").await?, &broker.shown(), 1).await?;
        Ok(store.announce(&"n9".parse()?, state.as_bytes().to_vec()).await?)
    })
}

pub(crate) fn of_two_agents_of_one_name_the_later_one_stays() -> Result<()> {
    let mut field = Field::new(1)?;
    let mut first = field.agents.remove(&1).context("no agent")?;
    let state = field.directory.path().join("elsewhere").display().to_string();
    let mut command = field.agent(1, &["--state", &state])?;
    let log = field.directory.path().join("second.log");
    let mut second = crate::campaign_lab::Program::start(&mut command, log)?;
    second.await_said("is ready")?;
    ensure!(first.wait()?.code() == Some(4), "{}", first.said());
    ensure!(first.said().contains("another agent was started later"), "{}", first.said());
    // And no two share a directory.
    let said = refusal(&mut field.agent(1, &["--state", &state])?)?;
    ensure!(said.contains("is in use by another agent"), "{said}");
    Ok(())
}

/// Two controllers want one agent: the second is told at once which campaign it is busy with.
pub(crate) fn an_agent_works_for_one_campaign_at_a_time() -> Result<()> {
    let field = Field::new(1)?;
    let mut first = field.run(&timers(1, 60), &[])?;
    let campaign = campaign_of(&mut first)?;
    first.await_said("timer.1: started")?;
    let plan = field.directory.path().join("plan.toml");
    let mut command = field.lab.client().command(crate::process::binary()?);
    let said = refusal(command.args(["campaign", "run"]).arg(plan))?;
    ensure!(said.contains(&format!("n1 (it works for campaign {campaign}; wait")), "{said}");
    // The first has not noticed.
    ensure!(!first.said().contains("timer.1: ended"), "{}", first.said());
    first.signal("INT")?;
    let result = field.result(&mut first, 0)?;
    ensure!(result["parts"][0]["end"] == "abandoned", "{result}");
    Ok(())
}

pub(crate) fn a_controller_whose_clock_is_wrong_starts_nothing() -> Result<()> {
    let field = Field::new(1)?;
    let plan = field.directory.path().join("plan.toml");
    fs::write(&plan, timers(1, 1))?;
    for (wrong, side) in [("-60s", "behind that of"), ("+60s", "ahead of that of")] {
        let (mut command, _) = field.controller(&[&format!("--clock-ahead={wrong}")])?;
        let output = run_to_end(command.arg(&plan), PATIENCE)?;
        let said = String::from_utf8(output.stderr)?;
        ensure!(output.status.code() == Some(3), "{}: {said}", output.status);
        let last = said.lines().last().unwrap_or_default();
        let clock = "nothing was started: this machine's clock is ";
        ensure!(last.contains(clock) && last.contains(&format!("{side} agent n1")), "{said}");
        ensure!(last.contains("--lead") && !said.contains(": started"), "{said}");
    }
    // One that is off by less than the lead goes on.
    let mut controller = field.run(&timers(1, 1), &["--clock-ahead=-500ms"])?;
    let result = field.result(&mut controller, 0)?;
    ensure!(result["parts"][0]["end"] == "done", "{result}");
    Ok(())
}
