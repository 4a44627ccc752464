//! An agent's side of the broker: it says that it is there, looks at what it is to do, and delivers
//! what it has to tell. Each goes on by itself for as long as the agent lives, whether the broker
//! is there or not, and decides nothing.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::StreamExt;
use serde::Deserialize;
use tokio::sync::Notify;
use tokio::sync::mpsc::UnboundedSender;
use tokio::time::{sleep, timeout};

use super::clock;
use super::run::{AgentOptions, Event, utc_ns};
use super::sight::Sight;
use crate::instruction::Instruction;
use crate::message::cut;
use crate::nats::{Broker, Kept, NatsError, Store};
use crate::order::{AgentState, ClockState};
use crate::spool::{Entry, Spool};
use crate::{AgentName, CampaignId};

/// How often an agent says that it is there, and looks at what it is to do without being called.
const BEAT: Duration = Duration::from_secs(2);
/// How often it looks at its clock.
const CLOCK_INTERVAL: Duration = Duration::from_secs(30);
/// Waits between attempts to deliver, doubled from the first to the last.
const RETRY_MIN: Duration = Duration::from_millis(250);
const RETRY_MAX: Duration = Duration::from_secs(4);
/// How long a bucket may say less than the bell that told of it: a cluster's servers follow one
/// another.
const LAG_STEPS: u32 = 50;
const LAG_STEP: Duration = Duration::from_millis(20);
const SECRET_BYTES: usize = 16;

/// What an agent's parts share.
pub(super) struct Shared {
    pub(super) options: AgentOptions,
    pub(super) store: Store,
    pub(super) incarnation: u64,
    /// What nobody else knows of this start of the agent.
    secret: [u8; SECRET_BYTES],
    spool: Mutex<Spool>,
    /// Rings when something was put into the spool.
    pub(super) put: Notify,
    busy: Mutex<Option<CampaignId>>,
    clock: Mutex<Option<ClockState>>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    pub(super) fn new(
        options: AgentOptions,
        store: Store,
        incarnation: u64,
        spool: Spool,
        clock: Option<ClockState>,
    ) -> io::Result<Self> {
        let (put, busy) = (Notify::new(), Mutex::default());
        let (spool, clock) = (Mutex::new(spool), Mutex::new(clock));
        let mut secret = [0; SECRET_BYTES];
        getrandom::fill(&mut secret).map_err(io::Error::other)?;
        Ok(Self { options, store, incarnation, secret, spool, put, busy, clock })
    }

    pub(super) fn spool(&self) -> MutexGuard<'_, Spool> {
        locked(&self.spool)
    }

    pub(super) fn set_busy(&self, busy: Option<&CampaignId>) {
        *locked(&self.busy) = busy.cloned();
    }

    pub(super) fn clock(&self) -> Option<ClockState> {
        locked(&self.clock).clone()
    }

    fn state(&self) -> Vec<u8> {
        let AgentOptions { name, version, labels, addresses, abilities, .. } = &self.options;
        let state = AgentState {
            protocol: crate::order::PROTOCOL,
            version: version.clone(),
            name: name.clone(),
            incarnation: self.incarnation,
            labels: labels.clone(),
            addresses: addresses.clone(),
            abilities: abilities.clone(),
            clock: self.clock(),
            busy: locked(&self.busy).clone(),
            at_ns: Some(utc_ns()),
        };
        // Names and numbers: nothing that has no form.
        serde_json::to_vec(&state).unwrap_or_default()
    }
}

/// What any version says of itself.
#[derive(Deserialize)]
struct Incarnation {
    incarnation: u64,
}

/// Says again and again that the agent is there, until a later one of its name is.
pub(super) async fn beat(shared: Arc<Shared>, to: UnboundedSender<Event>) {
    let Shared { options, store, .. } = &*shared;
    let mut is_lost = false;
    loop {
        match say_there(&shared).await {
            Ok(true) => {
                if is_lost {
                    let waiting = shared.spool().len();
                    let said = format!("the NATS server is back; {waiting} reports wait for it");
                    let _ = to.send(Event::Say(said));
                }
                is_lost = false;
            }
            Ok(false) => {
                let _ = to.send(Event::Replaced);
                return;
            }
            Err(error) => {
                if !is_lost {
                    let _ = to.send(Event::Say(format!("{error}; this agent goes on without it")));
                }
                is_lost = true;
                // One that came back empty has no buckets any more.
                let Broker { replicas, .. } = options.broker;
                let _ = store.reopen(&options.broker.shown(), replicas).await;
            }
        }
        sleep(BEAT).await;
    }
}

async fn say_there(shared: &Shared) -> Result<bool, NatsError> {
    let Shared { options, store, incarnation, .. } = shared;
    if let Some(Kept { bytes, .. }) = store.agent(&options.name).await? {
        let other = serde_json::from_slice::<Incarnation>(&bytes);
        if other.is_ok_and(|other| other.incarnation > *incarnation) {
            return Ok(false);
        }
    }
    store.announce(&options.name, shared.state()).await?;
    Ok(true)
}

/// Looks at what the agent is to do whenever it is called, and now and then without.
pub(super) async fn watch(shared: Arc<Shared>, to: UnboundedSender<Event>) {
    let Shared { options, store, .. } = &*shared;
    let mut bells = loop {
        match store.bells(&options.name).await {
            Ok(bells) => break bells,
            Err(_) => sleep(BEAT).await,
        }
    };
    let mut sight = Sight::default();
    let mut least = 0;
    loop {
        if let Ok(order) = look(store, &options.name, least).await
            && sight.is_news(order.as_ref().map(|order| order.revision))
        {
            // An empty one says that it was taken back.
            let order = order.filter(|order| !order.bytes.is_empty());
            let order = order.map(|order| Instruction::unpack(&order.bytes)).transpose();
            let _ = to.send(Event::Seen(order));
        }
        // An unheard bell costs a beat.
        least = match timeout(BEAT, bells.next()).await {
            Ok(Some(bell)) => {
                { std::str::from_utf8(&bell.payload).ok().and_then(|text| text.parse().ok()) }
                    .unwrap_or(0)
            }
            Ok(None) => {
                sleep(BEAT).await;
                0
            }
            Err(_) => 0,
        };
    }
}

/// What is to be done, of this revision or a later one where it comes soon.
async fn look(store: &Store, name: &AgentName, least: u64) -> Result<Option<Kept>, NatsError> {
    for _ in 0..LAG_STEPS {
        let order = store.order_or_end(name).await?;
        if order.as_ref().map_or(0, |order| order.revision) >= least {
            return Ok(order);
        }
        sleep(LAG_STEP).await;
    }
    store.order_or_end(name).await
}

/// Delivers what is in the spool, from the oldest on, and removes what the broker has. What it does
/// not take is tried again when all behind it have been tried.
pub(super) async fn deliver(shared: Arc<Shared>, to: UnboundedSender<Event>) {
    let (mut wait, mut tried) = (RETRY_MIN, 0);
    loop {
        let next = shared.spool().next_behind(tried);
        let failed = match next {
            Ok(None) => {
                shared.put.notified().await;
                continue;
            }
            Ok(Some((place, entry))) => {
                tried = place;
                if send(&shared, &entry).await.is_err() {
                    // The heartbeat says that the broker is gone.
                    sleep(wait).await;
                    wait = (wait * 2).min(RETRY_MAX);
                    continue;
                }
                wait = RETRY_MIN;
                shared.spool().remove(place)
            }
            Err(error) => Err(error),
        };
        if let Err(error) = failed {
            let _ = to.send(Event::Say(error.to_string()));
            sleep(RETRY_MAX).await;
        }
    }
}

async fn send(Shared { store, secret, .. }: &Shared, entry: &Entry) -> Result<(), NatsError> {
    for part in cut(&entry.id, &entry.packed, store.message_bytes_max()) {
        store.tell(&entry.campaign, &entry.agent, &part.id(secret), part.to_bytes()).await?;
    }
    Ok(())
}

/// Looks at the clock now and then.
pub(super) async fn mind_clock(shared: Arc<Shared>) {
    loop {
        sleep(CLOCK_INTERVAL).await;
        let state = clock_now(&shared.options).await;
        *locked(&shared.clock) = state;
    }
}

/// Looks at the clock.
pub(super) async fn clock_now(options: &AgentOptions) -> Option<ClockState> {
    let (program, server) = (options.program.clone(), options.clock_server.clone());
    let look = move || clock::look(&program, server.as_deref());
    tokio::task::spawn_blocking(look).await.ok().flatten()
}
