//! Setup of a controller: with a plan to place, or with a campaign to resume.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::io;
use std::ops::ControlFlow;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::campaign_state::CampaignState;
use super::driver::{Controller, IssuedOrder};
use super::eligibility::{EligibleAgents, classify};
use super::event::ControllerEvent;
use super::ledger::Ledger;
use super::presence::Presence;
use super::reader::ReportReader;
use super::run::{CampaignError, CampaignSource, ControllerOptions};
use super::wait::RETRY;
use crate::CampaignId;
use crate::assignment::Assignment;
use crate::nats::{BrokerStore, WriteOutcome};
use crate::order::Order;
use crate::placement::{Placement, assign_roles};
use crate::plan::Plan;

/// Time for which missing agents are awaited: heartbeats are sent every 2 s, and a broker that was
/// just restarted has none.
const AGENTS_TIMEOUT: Duration = Duration::from_secs(5);

/// Longest time for reading the reports that exist already.
const REPLAY_TIMEOUT: Duration = Duration::from_mins(2);

/// Inbox prefix of replies to controllers.
pub(super) const INBOX: &str = "horolog-controller";

/// State with which a campaign begins.
struct CampaignSetup {
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
        event_sink: &'a dyn Fn(&ControllerEvent<'_>),
        flow: &'a dyn Fn() -> ControlFlow<()>,
    ) -> Result<Self, CampaignError> {
        match options.what.clone() {
            CampaignSource::Plan(text, settings) => {
                // An invalid plan is detected without a broker.
                let plan = Plan::parse(&text, &settings).map_err(CampaignError::Plan)?;
                let store = open(&options).await?;
                let (eligible, placement) = placed(&store, &plan, &options).await?;
                let now_ms = (options.utc_ns() / 1_000_000) as u64;
                let id = CampaignId::fresh(&plan.name, now_ms).map_err(io::Error::other)?;
                let state = CampaignState::new(&options.version, text, settings, eligible);
                let ground = CampaignSetup { store, id, state, plan, placement };
                let mut controller = Self::on(ground, options, event_sink, flow).await?;
                controller.save_state().await?;
                Ok(controller)
            }
            CampaignSource::Resume(id) => {
                let store = open(&options).await?;
                let stored = store.campaign(&id).await?;
                let stored = stored.ok_or_else(|| CampaignError::Unknown(id.clone()))?;
                let state = CampaignState::unpack(&stored.bytes, &options.version)
                    .map_err(|version| CampaignError::Version(id.clone(), version))?;
                let plan = Plan::parse(&state.plan, &state.settings);
                let plan = plan.map_err(CampaignError::Plan)?;
                let placement = state.placement(&plan)?;
                let ground = CampaignSetup { store, id, state, plan, placement };
                let mut controller = Self::on(ground, options, event_sink, flow).await?;
                controller.revision = stored.revision;
                // From here on a previous controller, if any, cannot continue.
                controller.save_state().await?;
                controller.take_up().await?;
                Ok(controller)
            }
        }
    }

    async fn on(
        ground: CampaignSetup,
        options: ControllerOptions,
        event_sink: &'a dyn Fn(&ControllerEvent<'_>),
        flow: &'a dyn Fn() -> ControlFlow<()>,
    ) -> Result<Self, CampaignError> {
        let CampaignSetup { store, id, mut state, plan, placement } = ground;
        state.take_over(options.utc_ns());
        let orders = placement.orders(&id, &options.version, &plan);
        let agents = orders.iter().map(|order| order.agent.to_string()).collect();
        let entry = |order: &Order| {
            let issued = IssuedOrder { order: order.clone(), revision: 0, word: None };
            (order.agent.clone(), issued)
        };
        Ok(Self {
            ledger: Ledger::new(id.clone(), &orders),
            reader: ReportReader::open(&store, &id, agents).await?,
            issued_orders: orders.iter().map(entry).collect(),
            abandoned: state.abandoned,
            options,
            event_sink,
            flow,
            store,
            id,
            state,
            revision: 0,
            plan,
            placement,
            requested_ns: None,
            answers: Vec::new(),
            presence: Presence::default(),
            agents_read_at: Instant::now(),
            lost: BTreeSet::new(),
            gone_since: None,
            has_read_all: false,
        })
    }

    /// Saves the campaign's state at the broker, unless another controller has changed it.
    pub(super) async fn save_state(&mut self) -> Result<(), CampaignError> {
        loop {
            let (id, packed, revision) = (self.id.clone(), self.state.pack(), self.revision);
            let keep =
                async |store: &BrokerStore| store.put_campaign(&id, packed.clone(), revision).await;
            match self.with_retry(keep).await? {
                WriteOutcome::Written(revision) => {
                    self.revision = revision;
                    return Ok(());
                }
                WriteOutcome::Conflict => self.find_own().await?,
            }
        }
    }

    /// Resolves a conflicting change of the state: made by this controller itself if its request
    /// succeeded but the response was lost, or by another one. A broker that restarted without its
    /// data has no controller at all.
    async fn find_own(&mut self) -> Result<(), CampaignError> {
        let id = self.id.clone();
        let Some(stored) =
            self.with_retry(async |store: &BrokerStore| store.campaign(&id).await).await?
        else {
            if self.with_retry(async |store: &BrokerStore| store.was_deleted(&id).await).await? {
                return Err(CampaignError::TakenOver(id));
            }
            self.revision = 0;
            return Ok(());
        };
        if stored.revision <= self.revision {
            // This server of a cluster lags behind.
            sleep(RETRY).await;
            return Ok(());
        }
        let state = CampaignState::unpack(&stored.bytes, &self.options.version);
        if !state.is_ok_and(|state| state.has_same_controller(&self.state)) {
            return Err(CampaignError::TakenOver(id));
        }
        self.revision = stored.revision;
        Ok(())
    }

    /// Checks that no other controller has taken over this campaign.
    pub(super) async fn still_owns(&mut self) -> Result<(), CampaignError> {
        let id = self.id.clone();
        loop {
            let stored =
                self.with_retry(async |store: &BrokerStore| store.campaign(&id).await).await?;
            match stored.map(|stored| stored.revision.cmp(&self.revision)) {
                Some(Ordering::Equal) => return Ok(()),
                Some(Ordering::Less) => sleep(RETRY).await,
                Some(Ordering::Greater) | None => return self.find_own().await,
            }
        }
    }

    /// Reads the progress of the previous controller.
    async fn take_up(&mut self) -> Result<(), CampaignError> {
        for issued in self.issued_orders.values_mut() {
            let Some(stored) = self.store.order(&issued.order.agent).await? else { continue };
            let instruction = Assignment::unpack(&stored.bytes).ok();
            if let Some(own) = instruction.filter(|one| one.order.campaign == self.id) {
                (issued.revision, issued.word) = (stored.revision, own.word);
            }
        }
        self.wait(REPLAY_TIMEOUT, |it| it.has_read_all).await.map(drop)
    }
}

async fn open(options: &ControllerOptions) -> Result<BrokerStore, CampaignError> {
    let broker = &options.broker;
    let client = broker.connect("horolog campaign", INBOX).await?;
    Ok(BrokerStore::open(client, &broker.shown(), broker.replicas).await?)
}

/// Places a plan on the present agents, as soon as there are enough.
async fn placed(
    store: &BrokerStore,
    plan: &Plan,
    options: &ControllerOptions,
) -> Result<(EligibleAgents, Placement), CampaignError> {
    let started = Instant::now();
    loop {
        let states = store.agents().await?;
        let states = states.iter().map(|stored| &*stored.bytes);
        let eligible = classify(states, &options.version, Some(plan.max_offset)).of_idle();
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
