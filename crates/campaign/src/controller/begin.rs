//! How a controller begins: with a plan that it places, or with a campaign that another one left.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::io;
use std::ops::ControlFlow;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::conduct::{Controller, Given};
use super::course::Course;
use super::ledger::Ledger;
use super::look::{Look, look};
use super::presence::Presence;
use super::reader::Reader;
use super::run::{CampaignError, ControllerOptions, What};
use super::step::Step;
use super::wait::RETRY;
use crate::CampaignId;
use crate::instruction::Instruction;
use crate::nats::{Change, Store};
use crate::order::Order;
use crate::place::{Placement, place};
use crate::plan::Plan;

/// How long agents are waited for that are not there: one says that it is there every 2 s, and a
/// broker that was just restarted knows of none.
const AGENTS_PATIENCE: Duration = Duration::from_secs(5);

/// How long it may take to read what has been told already.
const REPLAY_PATIENCE: Duration = Duration::from_mins(2);

/// By what answers come to controllers.
pub(super) const INBOX: &str = "horolog-controller";

/// What a campaign stands on.
struct Ground {
    store: Store,
    id: CampaignId,
    course: Course,
    plan: Plan,
    placement: Placement,
}

impl<'a> Controller<'a> {
    /// Connects, and finds or makes the campaign.
    pub(super) async fn begin(
        options: ControllerOptions,
        tell: &'a dyn Fn(&Step<'_>),
        flow: &'a dyn Fn() -> ControlFlow<()>,
    ) -> Result<Self, CampaignError> {
        match options.what.clone() {
            What::Plan(text, settings) => {
                // A plan that is wrong needs no broker.
                let plan = Plan::parse(&text, &settings).map_err(CampaignError::Plan)?;
                let store = open(&options).await?;
                let (look, placement) = placed(&store, &plan, &options).await?;
                let now_ms = (options.utc_ns() / 1_000_000) as u64;
                let id = CampaignId::fresh(&plan.name, now_ms).map_err(io::Error::other)?;
                let course = Course::new(&options.version, text, settings, look);
                let ground = Ground { store, id, course, plan, placement };
                let mut controller = Self::on(ground, options, tell, flow).await?;
                controller.keep_course().await?;
                Ok(controller)
            }
            What::Resume(id) => {
                let store = open(&options).await?;
                let kept = store.campaign(&id).await?;
                let kept = kept.ok_or_else(|| CampaignError::Unknown(id.clone()))?;
                let course = Course::unpack(&kept.bytes, &options.version)
                    .map_err(|version| CampaignError::Version(id.clone(), version))?;
                let plan = Plan::parse(&course.plan, &course.settings);
                let plan = plan.map_err(CampaignError::Plan)?;
                let placement = course.place(&plan)?;
                let ground = Ground { store, id, course, plan, placement };
                let mut controller = Self::on(ground, options, tell, flow).await?;
                controller.revision = kept.revision;
                // From here on the controller before, if there is one, cannot go on.
                controller.keep_course().await?;
                controller.take_up().await?;
                Ok(controller)
            }
        }
    }

    async fn on(
        ground: Ground,
        options: ControllerOptions,
        tell: &'a dyn Fn(&Step<'_>),
        flow: &'a dyn Fn() -> ControlFlow<()>,
    ) -> Result<Self, CampaignError> {
        let Ground { store, id, mut course, plan, placement } = ground;
        course.take_over(options.utc_ns());
        let orders = placement.orders(&id, &options.version, &plan);
        let agents = orders.iter().map(|order| order.agent.to_string()).collect();
        let given = |order: &Order| {
            let given = Given { order: order.clone(), revision: 0, word: None };
            (order.agent.clone(), given)
        };
        Ok(Self {
            ledger: Ledger::new(id.clone(), &orders),
            reader: Reader::open(&store, &id, agents).await?,
            given: orders.iter().map(given).collect(),
            abandoned: course.abandoned,
            options,
            tell,
            flow,
            store,
            id,
            course,
            revision: 0,
            plan,
            placement,
            asked_ns: None,
            answers: Vec::new(),
            presence: Presence::default(),
            looked: Instant::now(),
            lost: BTreeSet::new(),
            gone_since: None,
            has_read_all: false,
        })
    }

    /// Puts the campaign's state at the broker, where no other controller has.
    pub(super) async fn keep_course(&mut self) -> Result<(), CampaignError> {
        loop {
            let (id, packed, revision) = (self.id.clone(), self.course.pack(), self.revision);
            let keep =
                async |store: &Store| store.keep_campaign(&id, packed.clone(), revision).await;
            match self.asked(keep).await? {
                Change::Made(revision) => {
                    self.revision = revision;
                    return Ok(());
                }
                Change::Overtaken => self.find_own().await?,
            }
        }
    }

    /// The state has been changed: by this controller itself, whose request was carried out
    /// although its answer was lost, or by another one. A broker that came back empty knows of no
    /// controller at all.
    async fn find_own(&mut self) -> Result<(), CampaignError> {
        let id = self.id.clone();
        let Some(kept) = self.asked(async |store: &Store| store.campaign(&id).await).await? else {
            if self.asked(async |store: &Store| store.is_forgotten(&id).await).await? {
                return Err(CampaignError::TakenOver(id));
            }
            self.revision = 0;
            return Ok(());
        };
        if kept.revision <= self.revision {
            // A server of a cluster that has not followed yet.
            sleep(RETRY).await;
            return Ok(());
        }
        let course = Course::unpack(&kept.bytes, &self.options.version);
        if !course.is_ok_and(|course| course.is_of_same_controller(&self.course)) {
            return Err(CampaignError::TakenOver(id));
        }
        self.revision = kept.revision;
        Ok(())
    }

    /// Makes sure that no other controller goes on with this campaign.
    pub(super) async fn is_still_own(&mut self) -> Result<(), CampaignError> {
        let id = self.id.clone();
        loop {
            let kept = self.asked(async |store: &Store| store.campaign(&id).await).await?;
            match kept.map(|kept| kept.revision.cmp(&self.revision)) {
                Some(Ordering::Equal) => return Ok(()),
                Some(Ordering::Less) => sleep(RETRY).await,
                Some(Ordering::Greater) | None => return self.find_own().await,
            }
        }
    }

    /// Finds out how far the controller before had come.
    async fn take_up(&mut self) -> Result<(), CampaignError> {
        for given in self.given.values_mut() {
            let Some(kept) = self.store.order(&given.order.agent).await? else { continue };
            let instruction = Instruction::unpack(&kept.bytes).ok();
            if let Some(own) = instruction.filter(|one| one.order.campaign == self.id) {
                (given.revision, given.word) = (kept.revision, own.word);
            }
        }
        self.wait(REPLAY_PATIENCE, |it| it.has_read_all).await.map(drop)
    }
}

async fn open(options: &ControllerOptions) -> Result<Store, CampaignError> {
    let broker = &options.broker;
    let client = broker.connect("horolog campaign", INBOX).await?;
    Ok(Store::open(client, &broker.shown(), broker.replicas).await?)
}

/// Places a plan on the agents that are there, once enough of them are.
async fn placed(
    store: &Store,
    plan: &Plan,
    options: &ControllerOptions,
) -> Result<(Look, Placement), CampaignError> {
    let started = Instant::now();
    loop {
        let states = store.agents().await?;
        let states = states.iter().map(|kept| &*kept.bytes);
        let look = look(states, &options.version, Some(plan.max_offset)).of_free();
        let candidates: Vec<_> = look.usable.iter().map(Into::into).collect();
        match place(plan, &candidates) {
            Ok(placement) => return Ok((look, placement)),
            Err(fault) if fault.is_option || started.elapsed() > AGENTS_PATIENCE => {
                return Err(CampaignError::Place { fault, unusable: look.unusable });
            }
            Err(_) => sleep(RETRY).await,
        }
    }
}
