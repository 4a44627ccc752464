//! Data at the broker, and the rules for reading and writing it. Three buckets hold the present
//! state: present agents, each agent's current order, each campaign's state. One stream holds the
//! reports of each campaign, until its controller has written its result.
//!
//! A waiting client receives no command, only a wake-up (a message that may be lost) that there is
//! something to read. The authoritative data is read from bucket or stream, from the last position,
//! so nothing depends on connections at a particular time. Every request has a timeout.

use std::fmt::Display;
use std::future::{Future, IntoFuture};
use std::time::Duration;

use async_nats::jetstream::kv::{self, Operation, UpdateErrorKind};
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::response::Response;
use async_nats::jetstream::stream::{self, DirectGetErrorKind, Stream};
use async_nats::jetstream::{self, Context};
use async_nats::{Client, Subscriber};
use tokio::time::timeout;

use super::connect::{NatsError, REQUEST_TIMEOUT, error_chain};
use crate::{AgentName, CampaignId};

const AGENTS: &str = "horolog-agents";
const ORDERS: &str = "horolog-orders";
const CAMPAIGNS: &str = "horolog-campaigns";
const REPORTS: &str = "HOROLOG";
const SUBJECT: &str = "horolog.campaign";
const WAKEUP_SUBJECT: &str = "horolog.bell";
const PROGRESS: &str = "horolog.progress";

/// Lifetime of an agent's heartbeat.
pub const HEARTBEAT_TTL: Duration = Duration::from_secs(10);
/// Lifetime of orders and campaigns that were not ended.
const AGE_MAX: Duration = Duration::from_hours(7 * 24);
/// Time for which the broker detects duplicates.
const DUPLICATES: Duration = Duration::from_mins(10);
/// Largest size of the reports of all campaigns, in bytes; if it is exceeded, agents keep their
/// reports and retry.
const REPORTS_BYTES_MAX: i64 = 1 << 30;
const BUCKET_BYTES_MAX: i64 = 128 << 20;
/// Overhead of a message in addition to its content, in bytes.
const OVERHEAD: usize = 4 << 10;

/// Buckets and stream of a broker.
#[derive(Clone, Debug)]
pub struct BrokerStore {
    client: Client,
    context: Context,
    agents: kv::Store,
    orders: kv::Store,
    campaigns: kv::Store,
    reports: Stream,
}

/// Value of a bucket.
#[derive(Clone, Debug)]
pub struct StoredValue {
    /// Revision within the bucket; a write names the revision that it replaces.
    pub revision: u64,
    /// Stored bytes.
    pub bytes: Vec<u8>,
}

/// Message of the stream.
#[derive(Clone, Debug)]
pub struct StoredMessage {
    /// Position in the stream; later ones are greater.
    pub sequence: u64,
    /// Sending agent, from the subject.
    pub agent: String,
    /// Message.
    pub bytes: Vec<u8>,
}

/// Outcome of a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WriteOutcome {
    /// Written with this revision.
    Written(u64),
    /// Changed by another client before.
    Conflict,
}

/// Limits a request by a timeout.
async fn bounded<T, E: std::error::Error>(
    what: &'static str,
    request: impl IntoFuture<Output = Result<T, E>>,
) -> Result<T, NatsError> {
    let request = timeout(REQUEST_TIMEOUT, request.into_future());
    let answer = request.await.map_err(|_| NatsError::Late(what))?;
    answer.map_err(|error| failed(what, error_chain(&error)))
}

fn failed(what: &'static str, why: impl Display) -> NatsError {
    NatsError::Request { what, why: why.to_string() }
}

impl BrokerStore {
    /// Opens the buckets and the stream, and creates missing ones. `servers` is for error messages.
    ///
    /// # Errors
    ///
    /// The broker has no storage, denies access, or does not respond.
    pub async fn open(client: Client, servers: &str, replicas: usize) -> Result<Self, NatsError> {
        let context = jetstream::new(client.clone());
        has_jetstream(&context, servers).await?;
        let open = async |name, description, age_max| {
            let config =
                stream::Config { num_replicas: replicas, ..bucket(name, description, age_max) };
            bounded("create a bucket", context.get_or_create_stream(config)).await?;
            bounded("open a bucket", context.get_key_value(name)).await
        };
        let reports = stream::Config {
            name: REPORTS.to_owned(),
            description: Some("horolog: reports of campaigns".to_owned()),
            subjects: vec![format!("{SUBJECT}.*.*")],
            max_age: AGE_MAX,
            max_bytes: REPORTS_BYTES_MAX,
            discard: stream::DiscardPolicy::New,
            duplicate_window: DUPLICATES,
            allow_direct: true,
            num_replicas: replicas,
            ..stream::Config::default()
        };
        let agents = open(AGENTS, "horolog: registered agents", HEARTBEAT_TTL).await?;
        let orders = open(ORDERS, "horolog: assignments of agents", AGE_MAX).await?;
        let campaigns = open(CAMPAIGNS, "horolog: unfinished campaigns", AGE_MAX).await?;
        let reports = bounded("create a stream", context.get_or_create_stream(reports)).await?;
        Ok(Self { client, context, agents, orders, campaigns, reports })
    }

    /// Creates missing buckets and the stream again, as at a broker restarted without its data.
    ///
    /// # Errors
    ///
    /// [`NatsError`], as for every request.
    pub async fn reopen(&self, servers: &str, replicas: usize) -> Result<(), NatsError> {
        Self::open(self.client.clone(), servers, replicas).await.map(drop)
    }

    /// Returns the largest content of one message, in bytes.
    #[must_use]
    pub fn message_bytes_max(&self) -> usize {
        self.client.max_payload().saturating_sub(OVERHEAD).max(1)
    }

    /// Publishes the heartbeat of an agent.
    ///
    /// # Errors
    ///
    /// [`NatsError`], as for every request.
    pub async fn put_agent(&self, name: &AgentName, state: Vec<u8>) -> Result<(), NatsError> {
        let put = self.agents.put(name.as_str(), state.into());
        bounded("register an agent", put).await.map(drop)
    }

    /// Deletes the heartbeat of an agent that ends.
    pub async fn delete_agent(&self, name: &AgentName) -> Result<(), NatsError> {
        bounded("deregister an agent", self.agents.purge(name.as_str())).await
    }

    /// Returns the last heartbeat of an agent.
    pub async fn agent(&self, name: &AgentName) -> Result<Option<StoredValue>, NatsError> {
        entry(&self.agents, name.as_str()).await
    }

    /// Returns the last heartbeats of all present agents.
    pub async fn agents(&self) -> Result<Vec<StoredValue>, NatsError> {
        let mut all = Vec::new();
        for name in keys(&self.agents).await? {
            all.extend(entry(&self.agents, &name).await?);
        }
        Ok(all)
    }

    /// Returns the order of an agent.
    pub async fn order(&self, name: &AgentName) -> Result<Option<StoredValue>, NatsError> {
        entry(&self.orders, name.as_str()).await
    }

    /// Returns the order of an agent; a deleted one is returned as well, with empty bytes.
    pub async fn order_or_end(&self, name: &AgentName) -> Result<Option<StoredValue>, NatsError> {
        let entry = bounded("read an assignment", self.orders.entry(name.as_str())).await?;
        Ok(entry.map(|entry| {
            let is_there = entry.operation == Operation::Put;
            let bytes = if is_there { entry.value.into() } else { Vec::new() };
            StoredValue { revision: entry.revision, bytes }
        }))
    }

    /// Stores an order that replaces this revision (0: none), and wakes the agent.
    pub async fn put_order(
        &self,
        name: &AgentName,
        order: Vec<u8>,
        revision: u64,
    ) -> Result<WriteOutcome, NatsError> {
        let change = change(&self.orders, name.as_str(), order, revision).await?;
        if let WriteOutcome::Written(revision) = change {
            // The agent reads periodically even if this is lost.
            let wakeup = self.client.publish(wakeup_subject(name), revision.to_string().into());
            let _ = timeout(REQUEST_TIMEOUT, wakeup).await;
        }
        Ok(change)
    }

    /// Deletes the order of an agent.
    pub async fn delete_order(&self, name: &AgentName, revision: u64) -> Result<(), NatsError> {
        let purge = self.orders.purge_expect_revision(name.as_str(), Some(revision));
        bounded("withdraw an order", purge).await
    }

    /// Subscribes to wake-ups for changes of an agent's order.
    pub async fn order_wakeups(&self, name: &AgentName) -> Result<Subscriber, NatsError> {
        bounded("subscribe", self.client.subscribe(wakeup_subject(name))).await
    }

    /// Returns the state of a campaign.
    pub async fn campaign(&self, id: &CampaignId) -> Result<Option<StoredValue>, NatsError> {
        entry(&self.campaigns, id.as_str()).await
    }

    /// Stores the state of a campaign, which replaces this revision (0: none).
    pub async fn put_campaign(
        &self,
        id: &CampaignId,
        state: Vec<u8>,
        revision: u64,
    ) -> Result<WriteOutcome, NatsError> {
        change(&self.campaigns, id.as_str(), state, revision).await
    }

    /// Returns the campaigns that are not over.
    pub async fn campaigns(&self) -> Result<Vec<String>, NatsError> {
        keys(&self.campaigns).await
    }

    /// Stores a fragment of a report; one with the identifier of an earlier one is dropped. On
    /// success the broker has stored it.
    pub async fn publish_report(
        &self,
        campaign: &CampaignId,
        agent: &AgentName,
        id: &str,
        message: Vec<u8>,
    ) -> Result<(), NatsError> {
        const WHAT: &str = "store a report";
        let publish = PublishMessage::build().message_id(id).payload(message.into());
        let subject = format!("{SUBJECT}.{campaign}.{agent}");
        let sent = bounded(WHAT, self.context.send_publish(subject, publish)).await?;
        bounded(WHAT, sent).await.map(drop)
    }

    /// Returns the first message of a campaign at or after this position in the stream.
    pub async fn next_report(
        &self,
        campaign: &CampaignId,
        from: u64,
    ) -> Result<Option<StoredMessage>, NatsError> {
        const WHAT: &str = "read a report";
        let request = self.reports.direct_get_next_for_subject(subjects(campaign), Some(from));
        let answer = timeout(REQUEST_TIMEOUT, request).await.map_err(|_| NatsError::Late(WHAT))?;
        match answer {
            Ok(message) => Ok(Some(StoredMessage {
                sequence: message.sequence,
                agent: message.subject.rsplit('.').next().unwrap_or_default().to_owned(),
                bytes: message.payload.into(),
            })),
            Err(error) if error.kind() == DirectGetErrorKind::NotFound => Ok(None),
            Err(error) => Err(failed(WHAT, error_chain(&error))),
        }
    }

    /// Returns the creation time of the stream of reports, in ns since 1970.
    pub async fn created_ns(&self) -> Result<i128, NatsError> {
        let info = bounded("read the state of the stream", self.reports.get_info()).await?;
        Ok(info.created.unix_timestamp_nanos())
    }

    /// Returns true if the campaign existed and was deleted.
    pub async fn was_deleted(&self, id: &CampaignId) -> Result<bool, NatsError> {
        let entry = self.campaigns.entry(id.as_str());
        let entry = bounded("read the last stored report", entry).await?;
        Ok(entry.is_some_and(|entry| entry.operation != Operation::Put))
    }

    /// Deletes all data of a campaign, if its state still has this revision.
    pub async fn delete_campaign(
        &self,
        campaign: &CampaignId,
        revision: u64,
    ) -> Result<(), NatsError> {
        let purge = self.campaigns.purge_expect_revision(campaign.as_str(), Some(revision));
        bounded("delete a campaign", purge).await?;
        let purge = self.reports.purge().filter(subjects(campaign));
        bounded("remove reports", purge).await.map(drop)
    }

    /// Publishes a best-effort event of a campaign; it is not stored.
    pub async fn publish_progress(
        &self,
        campaign: &CampaignId,
        agent: &AgentName,
        message: Vec<u8>,
    ) {
        let subject = format!("{PROGRESS}.{campaign}.{agent}");
        let _ = timeout(REQUEST_TIMEOUT, self.client.publish(subject, message.into())).await;
    }

    /// Subscribes to the best-effort events of a campaign.
    pub async fn progress_events(&self, campaign: &CampaignId) -> Result<Subscriber, NatsError> {
        let subject = format!("{PROGRESS}.{campaign}.*");
        bounded("subscribe", self.client.subscribe(subject)).await
    }

    /// Flushes published messages, if the broker is reachable.
    pub async fn flush(&self) {
        let _ = timeout(REQUEST_TIMEOUT, self.client.flush()).await;
    }
}

fn wakeup_subject(name: &AgentName) -> String {
    format!("{WAKEUP_SUBJECT}.{name}")
}

fn subjects(campaign: &CampaignId) -> String {
    format!("{SUBJECT}.{campaign}.*")
}

/// Returns a bucket as the stream that it is at the broker. The library's own function first
/// queries information that servers before 2.10 do not supply.
fn bucket(name: &str, description: &str, max_age: Duration) -> stream::Config {
    stream::Config {
        name: format!("KV_{name}"),
        description: Some(description.to_owned()),
        subjects: vec![format!("$KV.{name}.>")],
        max_messages_per_subject: 1,
        max_bytes: BUCKET_BYTES_MAX,
        max_age,
        discard: stream::DiscardPolicy::New,
        allow_rollup: true,
        deny_delete: true,
        allow_direct: true,
        ..stream::Config::default()
    }
}

async fn has_jetstream(context: &Context, servers: &str) -> Result<(), NatsError> {
    use jetstream::context::RequestErrorKind as Kind;
    const WHAT: &str = "query JetStream";
    let request = context.request::<_, _, Response<serde_json::Value>>("INFO", b"");
    let why = match timeout(REQUEST_TIMEOUT, request).await {
        Ok(Ok(Response::Ok(_))) => return Ok(()),
        // JetStream is known but disabled: for this server, or for this account.
        Ok(Ok(Response::Err { error })) => error_chain(&error),
        Ok(Err(error)) if error.kind() == Kind::NoResponders => {
            "no service responds for it".to_owned()
        }
        Ok(Err(error)) => return Err(failed(WHAT, error_chain(&error))),
        Err(_) => return Err(NatsError::Late(WHAT)),
    };
    Err(NatsError::NoJetStream { servers: servers.to_owned(), why })
}

async fn entry(bucket: &kv::Store, key: &str) -> Result<Option<StoredValue>, NatsError> {
    let entry = bounded("read a value", bucket.entry(key)).await?;
    let is_there = |entry: &kv::Entry| entry.operation == Operation::Put;
    let stored =
        |entry: kv::Entry| StoredValue { revision: entry.revision, bytes: entry.value.into() };
    Ok(entry.filter(is_there).map(stored))
}

async fn keys(bucket: &kv::Store) -> Result<Vec<String>, NatsError> {
    use futures_util::TryStreamExt;
    const WHAT: &str = "list the keys";
    let keys = bounded(WHAT, bucket.keys()).await?;
    let mut keys: Vec<String> = bounded(WHAT, keys.try_collect::<Vec<_>>()).await?;
    keys.sort_unstable();
    Ok(keys)
}

/// Writes a value if it has not changed since. A deleted value counts as one that never existed.
async fn change(
    bucket: &kv::Store,
    key: &str,
    bytes: Vec<u8>,
    revision: u64,
) -> Result<WriteOutcome, NatsError> {
    const WHAT: &str = "store a value";
    let change: std::pin::Pin<Box<dyn Future<Output = _> + Send>> = if revision == 0 {
        Box::pin(async {
            use kv::CreateErrorKind::AlreadyExists;
            let created = bucket.create(key, bytes.into()).await;
            created.map_err(|error| (error.kind() == AlreadyExists, error_chain(&error)))
        })
    } else {
        Box::pin(async {
            let updated = bucket.update(key, bytes.into(), revision).await;
            updated.map_err(|error| {
                (error.kind() == UpdateErrorKind::WrongLastRevision, error_chain(&error))
            })
        })
    };
    match timeout(REQUEST_TIMEOUT, change).await {
        Ok(Ok(revision)) => Ok(WriteOutcome::Written(revision)),
        Ok(Err((true, _))) => Ok(WriteOutcome::Conflict),
        Ok(Err((false, why))) => Err(failed(WHAT, why)),
        Err(_) => Err(NatsError::Late(WHAT)),
    }
}
