//! Time in which a controller merges the reports of fifty agents over ten minutes into one result:
//! from the messages stored at a broker to the JSON on disk, by the product's own code.

use std::collections::BTreeMap;
use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use horolog_campaign::CampaignId;
use horolog_campaign::controller::Ledger;
use horolog_campaign::merge::{MergeInput, merge};
use horolog_campaign::order::{JobEnd, JobOutcome, Order, PROTOCOL};
use horolog_campaign::placement::{AgentCandidate, Placement, assign_roles};
use horolog_campaign::plan::Plan;
use horolog_campaign::report::{
    AgentReport, AgentReportContent, FRAGMENT_BYTES_MAX, ReportFragment, ReportReassembly,
    fragments,
};
use horolog_campaign::role::RoleKind;
use horolog_record::{Host, LoadResult, MergedResults, rfc3339_now};
use horolog_report::{RenderableResult, table, to_json};
use tempfile::TempDir;

use crate::figure::{Figure, Goal};
use crate::synthetic_soak::{RATE, TRIAL_S, TRIALS, record};

const AGENTS: usize = 50;
const GOAL_S: f64 = 2.0;
const INSTANT_NS: i64 = 1_795_468_800_000_000_000;

/// Returns the messages that a broker stores of one agent.
fn stored_messages(order: &Order, record: &LoadResult) -> Result<Vec<Message>> {
    let job = order.jobs.first().context("no job")?.id.clone();
    let outcome = JobOutcome {
        campaign: order.campaign.clone(),
        agent: order.agent.clone(),
        job,
        ending: JobEnd::Done { status: 0 },
        intended_ns: Some(INSTANT_NS),
        started_ns: Some(INSTANT_NS + 50_000),
        ended_ns: Some(INSTANT_NS + 600_000_000_000),
        clock: None,
        result: Some(serde_json::to_value(record)?),
        stderr_tail: String::new(),
    };
    let report = AgentReport {
        protocol: PROTOCOL,
        campaign: order.campaign.clone(),
        agent: order.agent.clone(),
        incarnation: 1,
        number: 1,
        content: AgentReportContent::Outcome(Box::new(outcome)),
    };
    let (id, packed) = (report.id(), report.pack()?);
    let message = |part: ReportFragment<'_>| Message {
        agent: order.agent.to_string(),
        bytes: part.to_bytes(),
    };
    Ok(fragments(&id, &packed, FRAGMENT_BYTES_MAX).map(message).collect())
}

fn plan() -> Result<Plan> {
    let text = format!(
        "schema = \"horolog.plan/2\"\nname = \"bench\"\n[[role]]\nname = \"load\"\n\
         kind = \"load-ntp\"\ncount = {AGENTS}\n[role.options]\ntarget = \"192.0.2.1\"\n\
         rate = \"{RATE}\"\n"
    );
    Ok(Plan::parse(&text, &[])?)
}

fn placement_of(plan: &Plan) -> Result<Placement> {
    let agent = |number: usize| {
        Ok(AgentCandidate {
            name: format!("n{number}").parse()?,
            labels: BTreeMap::new(),
            addresses: vec![Ipv4Addr::LOCALHOST.into()],
            kinds: RoleKind::ALL.to_vec(),
        })
    };
    Ok(assign_roles(plan, &(0..AGENTS).map(agent).collect::<Result<Vec<_>>>()?)?)
}

/// Message as a broker stores it.
struct Message {
    /// Name of the sender, from the subject of the message.
    agent: String,
    bytes: Vec<u8>,
}

/// Input of a controller when it begins to read reports.
pub(crate) struct MergeBenchInput {
    plan: Plan,
    placement: Placement,
    campaign: CampaignId,
    orders: Vec<Order>,
    host: Host,
    messages: Vec<Message>,
}

impl MergeBenchInput {
    pub(crate) fn new() -> Result<Self> {
        let (plan, host) = (plan()?, Host::read());
        let campaign: CampaignId = "bench-1".parse()?;
        let placement = placement_of(&plan)?;
        let orders = placement.orders(&campaign, "0", &plan);
        let mut messages = Vec::new();
        for (agent, order) in orders.iter().enumerate() {
            messages.extend(stored_messages(order, &record(agent as u64, &host))?);
        }
        Ok(Self { plan, placement, campaign, orders, host, messages })
    }

    /// Merges the messages into `result.json` in `directory`, and returns the time in seconds.
    pub(crate) fn merge_s(&self, directory: &Path) -> Result<f64> {
        let began = Instant::now();
        let mut ledger = Ledger::new(self.campaign.clone(), &self.orders);
        let mut assembly = ReportReassembly::default();
        for message in &self.messages {
            let Message { agent, bytes } = message;
            if let Some(packed) = assembly.add_fragment(agent, &ReportFragment::parse(bytes)?)? {
                ledger.ingest(agent, AgentReport::unpack(&packed)?);
            }
        }
        let result = merge(MergeInput {
            plan: &self.plan,
            placement: &self.placement,
            campaign: &self.campaign,
            started: rfc3339_now(),
            command: Vec::new(),
            host: self.host.clone(),
            local: false,
            interrupted: false,
            at_ns: Some(INSTANT_NS),
            delivery: None,
            outcomes: ledger.take_outcomes().into_values().collect(),
            findings: Vec::new(),
        });
        fs::write(directory.join("result.json"), to_json(&result))?;
        let took_s = began.elapsed().as_secs_f64();
        // Checks that the result is complete.
        let MergedResults::Load { trials, .. } = &result.roles[0].merged else {
            anyhow::bail!("no trials")
        };
        let sent = (AGENTS * RATE * TRIAL_S) as u64;
        ensure!(trials.len() == TRIALS && trials.iter().all(|trial| trial.trial.sent == sent));
        let rtts = trials.iter().filter_map(|trial| trial.trial.rtt_ns.as_ref());
        ensure!(rtts.map(|rtt| rtt.count).sum::<u64>() == sent * TRIALS as u64);
        fs::write(directory.join("result.html"), result.page())?;
        fs::write(directory.join("result.txt"), result.text(&table::TableStyle::default()))?;
        Ok(took_s)
    }
}

/// Merges the same results `rounds` times.
pub(crate) fn measure(rounds: usize) -> Result<Vec<Figure>> {
    let ground = MergeBenchInput::new()?;
    let directory = TempDir::new()?;
    let runs = (0..rounds).map(|_| ground.merge_s(directory.path()));
    let runs = runs.collect::<Result<Vec<_>>>()?;
    let name = format!("campaign: {AGENTS} results of ten minutes made one");
    Ok(vec![Figure::new(name, "s", runs).with(Goal::Below(GOAL_S))])
}
