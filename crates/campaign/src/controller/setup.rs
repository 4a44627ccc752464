//! Setup of a controller: with a plan to place, or with a campaign to resume.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::io;
use std::ops::ControlFlow;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::campaign_state::CampaignState;
use super::driver::{Controller, IssuedOrder};
use super::eligibility::{PresentAgents, classify_agents};
use super::event::CampaignProgressEvent;
use super::ledger::Ledger;
use super::presence::AgentPresenceTracker;
use super::reader::AgentReportReader;
use super::run::{CampaignError, ControllerOptions, NewOrResumedCampaign};
use super::wait::RETRY;
use crate::CampaignId;
use crate::assignment::Assignment;
use crate::nats::{BrokerStore, WriteOutcome};
use crate::order::Order;
use crate::placement::{Placement, assign_roles};
use crate::plan::Plan;

/// Longest wait for the agents that a plan needs: heartbeats are sent every 2 s, and a broker that
/// was just restarted has none.
const AGENTS_TIMEOUT: Duration = Duration::from_secs(5);

/// Longest time for a resuming controller to read the existing reports.
const REPLAY_TIMEOUT: Duration = Duration::from_mins(2);

/// Inbox prefix of replies to controllers.
pub(super) const INBOX: &str = "horolog-controller";

/// Broker connection, state, plan and placement from which a controller begins.
struct BegunOrResumedCampaign {
    store: BrokerStore,
    id: CampaignId,
    state: CampaignState,
    plan: Plan,
    placement: Placement,
}

impl<'a> Controller<'a> {
    /// Connects, and finds or creates the campaign.
    pub(super) async fn begin(
        options: ControllerOptions,
        event_sink: &'a dyn Fn(&CampaignProgressEvent<'_>),
        flow: &'a dyn Fn() -> ControlFlow<()>,
    ) -> Result<Self, CampaignError> {
        match options.source.clone() {
            NewOrResumedCampaign::Plan(text, settings) => {
                // An invalid plan is detected without a broker.
                let plan = Plan::parse(&text, &settings).map_err(CampaignError::Plan)?;
                let store = open_broker(&options).await?;
                let (eligible, placement) = await_placement(&store, &plan, &options).await?;
                let now_ms = (options.utc_ns() / 1_000_000) as u64;
                let id = CampaignId::generate(&plan.name, now_ms).map_err(io::Error::other)?;
                let state = CampaignState::new(&options.version, text, settings, eligible);
                let setup = BegunOrResumedCampaign { store, id, state, plan, placement };
                let mut controller = Self::from_setup(setup, options, event_sink, flow).await?;
                controller.save_state().await?;
                Ok(controller)
            }
            NewOrResumedCampaign::Resume(id) => {
                let store = open_broker(&options).await?;
                let stored = store.campaign(&id).await?;
                let stored = stored.ok_or_else(|| CampaignError::Unknown(id.clone()))?;
                let state = CampaignState::unpack(&stored.bytes, &options.version)
                    .map_err(|version| CampaignError::Version(id.clone(), version))?;
                let plan = Plan::parse(&state.plan, &state.settings);
                let plan = plan.map_err(CampaignError::Plan)?;
                let placement = state.placement(&plan)?;
                let setup = BegunOrResumedCampaign { store, id, state, plan, placement };
                let mut controller = Self::from_setup(setup, options, event_sink, flow).await?;
                controller.state_revision = stored.revision;
                // From here on a previous controller, if any, cannot continue.
                controller.save_state().await?;
                controller.replay_progress().await?;
                Ok(controller)
            }
        }
    }

    async fn from_setup(
        setup: BegunOrResumedCampaign,
        options: ControllerOptions,
        event_sink: &'a dyn Fn(&CampaignProgressEvent<'_>),
        flow: &'a dyn Fn() -> ControlFlow<()>,
    ) -> Result<Self, CampaignError> {
        let BegunOrResumedCampaign { store, id, mut state, plan, placement } = setup;
        state.take_over(options.utc_ns());
        let orders = placement.orders(&id, &options.version, &plan);
        let agents = orders.iter().map(|order| order.agent.to_string()).collect();
        let entry = |order: &Order| {
            let issued = IssuedOrder { order: order.clone(), revision: 0, command: None };
            (order.agent.clone(), issued)
        };
        Ok(Self {
            ledger: Ledger::new(id.clone(), &orders),
            reader: AgentReportReader::open(&store, &id, agents).await?,
            issued_orders: orders.iter().map(entry).collect(),
            abandoned: state.abandoned,
            options,
            event_sink,
            flow,
            store,
            id,
            state,
            state_revision: 0,
            plan,
            placement,
            requested_ns: None,
            clock_exchanges: Vec::new(),
            presence: AgentPresenceTracker::default(),
            agents_read_at: Instant::now(),
            lost: BTreeSet::new(),
            broker_unreachable_since: None,
            has_read_all: false,
        })
    }

    /// Saves the campaign's state at the broker; fails if another controller has taken over.
    pub(super) async fn save_state(&mut self) -> Result<(), CampaignError> {
        loop {
            let (id, packed, revision) = (self.id.clone(), self.state.pack(), self.state_revision);
            let put_state =
                async |store: &BrokerStore| store.put_campaign(&id, packed.clone(), revision).await;
            match self.with_retry(put_state).await? {
                WriteOutcome::Written(revision) => {
                    self.state_revision = revision;
                    return Ok(());
                }
                WriteOutcome::Conflict => self.resolve_conflict().await?,
            }
        }
    }

    /// Resolves a write conflict on the state. If this controller changed it (its request
    /// succeeded, but the response was lost), the new revision is adopted. If another controller
    /// changed or deleted it, this is an error. If the broker restarted without its data, the state
    /// is to be written anew.
    async fn resolve_conflict(&mut self) -> Result<(), CampaignError> {
        let id = self.id.clone();
        let Some(stored) =
            self.with_retry(async |store: &BrokerStore| store.campaign(&id).await).await?
        else {
            if self.with_retry(async |store: &BrokerStore| store.was_deleted(&id).await).await? {
                return Err(CampaignError::TakenOver(id));
            }
            self.state_revision = 0;
            return Ok(());
        };
        if stored.revision <= self.state_revision {
            // This server of a cluster lags behind.
            sleep(RETRY).await;
            return Ok(());
        }
        let state = CampaignState::unpack(&stored.bytes, &self.options.version);
        if !state.is_ok_and(|state| state.has_same_controller(&self.state)) {
            return Err(CampaignError::TakenOver(id));
        }
        self.state_revision = stored.revision;
        Ok(())
    }

    /// Checks that no other controller has taken over this campaign.
    pub(super) async fn check_ownership(&mut self) -> Result<(), CampaignError> {
        let id = self.id.clone();
        loop {
            let stored =
                self.with_retry(async |store: &BrokerStore| store.campaign(&id).await).await?;
            match stored.map(|stored| stored.revision.cmp(&self.state_revision)) {
                Some(Ordering::Equal) => return Ok(()),
                Some(Ordering::Less) => sleep(RETRY).await,
                Some(Ordering::Greater) | None => return self.resolve_conflict().await,
            }
        }
    }

    /// Reads the stored orders and all existing reports, to continue where the previous controller
    /// stopped.
    async fn replay_progress(&mut self) -> Result<(), CampaignError> {
        for issued in self.issued_orders.values_mut() {
            let Some(stored) = self.store.order(&issued.order.agent).await? else { continue };
            let assignment = Assignment::unpack(&stored.bytes).ok();
            if let Some(own) = assignment.filter(|assignment| assignment.order.campaign == self.id)
            {
                (issued.revision, issued.command) = (stored.revision, own.word);
            }
        }
        self.wait(REPLAY_TIMEOUT, |controller| controller.has_read_all).await.map(drop)
    }
}

async fn open_broker(options: &ControllerOptions) -> Result<BrokerStore, CampaignError> {
    let broker = &options.broker;
    let client = broker.connect("horolog campaign", INBOX).await?;
    Ok(BrokerStore::open(client, &broker.servers_text(), broker.replicas).await?)
}

/// Places a plan on the present agents; waits up to [`AGENTS_TIMEOUT`] until there are enough.
async fn await_placement(
    store: &BrokerStore,
    plan: &Plan,
    options: &ControllerOptions,
) -> Result<(PresentAgents, Placement), CampaignError> {
    let started = Instant::now();
    loop {
        let states = store.agents().await?;
        let states = states.iter().map(|stored| &*stored.bytes);
        let eligible =
            classify_agents(states, &options.version, Some(plan.max_offset)).without_busy();
        let candidates: Vec<_> = eligible.usable.iter().map(Into::into).collect();
        match assign_roles(plan, &candidates) {
            Ok(placement) => return Ok((eligible, placement)),
            Err(fault) if fault.is_option || started.elapsed() > AGENTS_TIMEOUT => {
                return Err(CampaignError::Placement { fault, unusable: eligible.unusable });
            }
            Err(_) => sleep(RETRY).await,
        }
    }
}
