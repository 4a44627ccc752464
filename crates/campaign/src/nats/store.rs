//! Data at the broker. Three key-value buckets hold the current state: heartbeats of the agents,
//! assignments, and states of campaigns. One stream holds the reports of each campaign until its
//! controller deletes it.
//!
//! Published messages are only wake-ups and progress, and may be lost. Commands and reports are
//! always read from a bucket or the stream, so a client that was disconnected misses nothing. Every
//! request has a timeout.

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

const AGENTS_BUCKET: &str = "horolog-agents";
const ORDERS_BUCKET: &str = "horolog-orders";
const CAMPAIGNS_BUCKET: &str = "horolog-campaigns";
const REPORTS_STREAM: &str = "HOROLOG";
const SUBJECT: &str = "horolog.campaign";
const WAKEUP_SUBJECT: &str = "horolog.bell";
const PROGRESS: &str = "horolog.progress";

/// Lifetime of an agent's heartbeat.
pub const HEARTBEAT_TTL: Duration = Duration::from_secs(10);
/// Age at which orders, states of campaigns and reports expire at the broker.
const AGE_MAX: Duration = Duration::from_hours(7 * 24);
/// Time for which the broker recognises the identifiers of earlier messages and drops duplicates.
const DUPLICATE_WINDOW: Duration = Duration::from_mins(10);
/// Largest size of the reports of all campaigns, in bytes; if it is exceeded, the broker rejects
/// reports, and agents retry.
const REPORTS_BYTES_MAX: i64 = 1 << 30;
const BUCKET_BYTES_MAX: i64 = 128 << 20;
/// Size reserved for the headers of a message, in bytes.
const MESSAGE_OVERHEAD_BYTES: usize = 4 << 10;

/// Buckets and stream of horolog at a broker.
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

/// Message of the stream of reports.
#[derive(Clone, Debug)]
pub struct StoredMessage {
    /// Sequence number in the stream.
    pub sequence: u64,
    /// Name of the sending agent, from the subject of the message.
    pub agent: String,
    /// Message.
    pub bytes: Vec<u8>,
}

/// Outcome of a conditional write to a bucket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WriteOutcome {
    /// Written with this revision.
    Written(u64),
    /// Not written: the value has another revision than the expected one.
    Conflict,
}

/// Awaits a request for at most [`REQUEST_TIMEOUT`]. `what` names it in errors, as a verb phrase.
async fn with_timeout<T, E: std::error::Error>(
    what: &'static str,
    request: impl IntoFuture<Output = Result<T, E>>,
) -> Result<T, NatsError> {
    let request = timeout(REQUEST_TIMEOUT, request.into_future());
    let answer = request.await.map_err(|_| NatsError::Timeout(what))?;
    answer.map_err(|error| request_error(what, error_chain(&error)))
}

fn request_error(what: &'static str, why: impl Display) -> NatsError {
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
        check_jetstream(&context, servers).await?;
        let open = async |name, description, age_max| {
            let config = stream::Config {
                num_replicas: replicas,
                ..bucket_config(name, description, age_max)
            };
            with_timeout("create a bucket", context.get_or_create_stream(config)).await?;
            with_timeout("open a bucket", context.get_key_value(name)).await
        };
        let reports = stream::Config {
            name: REPORTS_STREAM.to_owned(),
            description: Some("horolog: reports of campaigns".to_owned()),
            subjects: vec![format!("{SUBJECT}.*.*")],
            max_age: AGE_MAX,
            max_bytes: REPORTS_BYTES_MAX,
            discard: stream::DiscardPolicy::New,
            duplicate_window: DUPLICATE_WINDOW,
            allow_direct: true,
            num_replicas: replicas,
            ..stream::Config::default()
        };
        let agents = open(AGENTS_BUCKET, "horolog: registered agents", HEARTBEAT_TTL).await?;
        let orders = open(ORDERS_BUCKET, "horolog: assignments of agents", AGE_MAX).await?;
        let campaigns = open(CAMPAIGNS_BUCKET, "horolog: unfinished campaigns", AGE_MAX).await?;
        let reports =
            with_timeout("create a stream", context.get_or_create_stream(reports)).await?;
        Ok(Self { client, context, agents, orders, campaigns, reports })
    }

    /// Creates missing buckets and the stream, for a broker that restarted without its data.
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
        self.client.max_payload().saturating_sub(MESSAGE_OVERHEAD_BYTES).max(1)
    }

    /// Publishes the heartbeat of an agent.
    ///
    /// # Errors
    ///
    /// [`NatsError`], as for every request.
    pub async fn put_agent(&self, name: &AgentName, state: Vec<u8>) -> Result<(), NatsError> {
        let put = self.agents.put(name.as_str(), state.into());
        with_timeout("register an agent", put).await.map(drop)
    }

    /// Deletes the heartbeat of an agent.
    pub async fn delete_agent(&self, name: &AgentName) -> Result<(), NatsError> {
        with_timeout("deregister an agent", self.agents.purge(name.as_str())).await
    }

    /// Returns the last heartbeat of an agent; `None` if it has expired.
    pub async fn agent(&self, name: &AgentName) -> Result<Option<StoredValue>, NatsError> {
        read_value(&self.agents, name.as_str()).await
    }

    /// Returns the last heartbeats of all present agents.
    pub async fn agents(&self) -> Result<Vec<StoredValue>, NatsError> {
        let mut all = Vec::new();
        for name in list_keys(&self.agents).await? {
            all.extend(read_value(&self.agents, &name).await?);
        }
        Ok(all)
    }

    /// Returns the assignment of an agent; `None` if there is none or it was deleted.
    pub async fn order(&self, name: &AgentName) -> Result<Option<StoredValue>, NatsError> {
        read_value(&self.orders, name.as_str()).await
    }

    /// Returns the assignment of an agent; a deleted one has empty bytes and the revision of the
    /// deletion.
    pub async fn order_or_deletion(
        &self,
        name: &AgentName,
    ) -> Result<Option<StoredValue>, NatsError> {
        let entry = with_timeout("read an assignment", self.orders.entry(name.as_str())).await?;
        Ok(entry.map(|entry| {
            let is_present = entry.operation == Operation::Put;
            let bytes = if is_present { entry.value.into() } else { Vec::new() };
            StoredValue { revision: entry.revision, bytes }
        }))
    }

    /// Stores an assignment if `revision` is the current one (0: none), and wakes the agent.
    pub async fn put_order(
        &self,
        name: &AgentName,
        order: Vec<u8>,
        revision: u64,
    ) -> Result<WriteOutcome, NatsError> {
        let change = compare_and_set(&self.orders, name.as_str(), order, revision).await?;
        if let WriteOutcome::Written(revision) = change {
            // If the wake-up is lost, the agent reads the assignment at its next heartbeat.
            let wakeup = self.client.publish(wakeup_subject(name), revision.to_string().into());
            let _ = timeout(REQUEST_TIMEOUT, wakeup).await;
        }
        Ok(change)
    }

    /// Deletes the assignment of an agent, if it still has this revision.
    pub async fn delete_order(&self, name: &AgentName, revision: u64) -> Result<(), NatsError> {
        let purge = self.orders.purge_expect_revision(name.as_str(), Some(revision));
        with_timeout("withdraw an order", purge).await
    }

    /// Subscribes to wake-ups for changes of an agent's order.
    pub async fn order_wakeups(&self, name: &AgentName) -> Result<Subscriber, NatsError> {
        with_timeout("subscribe", self.client.subscribe(wakeup_subject(name))).await
    }

    /// Returns the state of a campaign; `None` if none is stored.
    pub async fn campaign(&self, id: &CampaignId) -> Result<Option<StoredValue>, NatsError> {
        read_value(&self.campaigns, id.as_str()).await
    }

    /// Stores the state of a campaign if `revision` is the current one (0: none).
    pub async fn put_campaign(
        &self,
        id: &CampaignId,
        state: Vec<u8>,
        revision: u64,
    ) -> Result<WriteOutcome, NatsError> {
        compare_and_set(&self.campaigns, id.as_str(), state, revision).await
    }

    /// Returns the identifiers of the campaigns whose state is stored, sorted.
    pub async fn campaigns(&self) -> Result<Vec<String>, NatsError> {
        list_keys(&self.campaigns).await
    }

    /// Stores a fragment of a report; `Ok` means that the broker has acknowledged it. The broker
    /// drops a message with the identifier of an earlier one.
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
        let sent = with_timeout(WHAT, self.context.send_publish(subject, publish)).await?;
        with_timeout(WHAT, sent).await.map(drop)
    }

    /// Returns the first report message of a campaign with at least this sequence number.
    pub async fn next_report(
        &self,
        campaign: &CampaignId,
        sequence_min: u64,
    ) -> Result<Option<StoredMessage>, NatsError> {
        const WHAT: &str = "read a report";
        let request =
            self.reports.direct_get_next_for_subject(report_subjects(campaign), Some(sequence_min));
        let answer =
            timeout(REQUEST_TIMEOUT, request).await.map_err(|_| NatsError::Timeout(WHAT))?;
        match answer {
            Ok(message) => Ok(Some(StoredMessage {
                sequence: message.sequence,
                agent: message.subject.rsplit('.').next().unwrap_or_default().to_owned(),
                bytes: message.payload.into(),
            })),
            Err(error) if error.kind() == DirectGetErrorKind::NotFound => Ok(None),
            Err(error) => Err(request_error(WHAT, error_chain(&error))),
        }
    }

    /// Returns the creation time of the stream of reports, in ns since 1970.
    pub async fn stream_created_ns(&self) -> Result<i128, NatsError> {
        let info = with_timeout("read the state of the stream", self.reports.get_info()).await?;
        Ok(info.created.unix_timestamp_nanos())
    }

    /// Returns true if the campaign existed and was deleted.
    pub async fn was_deleted(&self, id: &CampaignId) -> Result<bool, NatsError> {
        let entry = self.campaigns.entry(id.as_str());
        let entry = with_timeout("read the state of the campaign", entry).await?;
        Ok(entry.is_some_and(|entry| entry.operation != Operation::Put))
    }

    /// Deletes all data of a campaign, if its state still has this revision.
    pub async fn delete_campaign(
        &self,
        campaign: &CampaignId,
        revision: u64,
    ) -> Result<(), NatsError> {
        let purge = self.campaigns.purge_expect_revision(campaign.as_str(), Some(revision));
        with_timeout("delete a campaign", purge).await?;
        let purge = self.reports.purge().filter(report_subjects(campaign));
        with_timeout("remove reports", purge).await.map(drop)
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
        with_timeout("subscribe", self.client.subscribe(subject)).await
    }

    /// Flushes published messages, if the broker is reachable.
    pub async fn flush(&self) {
        let _ = timeout(REQUEST_TIMEOUT, self.client.flush()).await;
    }
}

fn wakeup_subject(name: &AgentName) -> String {
    format!("{WAKEUP_SUBJECT}.{name}")
}

fn report_subjects(campaign: &CampaignId) -> String {
    format!("{SUBJECT}.{campaign}.*")
}

/// Returns the configuration of the stream that implements a key-value bucket. The library's own
/// function for buckets first requests information that NATS servers before 2.10 do not supply.
fn bucket_config(name: &str, description: &str, max_age: Duration) -> stream::Config {
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

async fn check_jetstream(context: &Context, servers: &str) -> Result<(), NatsError> {
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
        Ok(Err(error)) => return Err(request_error(WHAT, error_chain(&error))),
        Err(_) => return Err(NatsError::Timeout(WHAT)),
    };
    Err(NatsError::NoJetStream { servers: servers.to_owned(), why })
}

async fn read_value(bucket: &kv::Store, key: &str) -> Result<Option<StoredValue>, NatsError> {
    let entry = with_timeout("read a value", bucket.entry(key)).await?;
    let is_present = |entry: &kv::Entry| entry.operation == Operation::Put;
    let stored =
        |entry: kv::Entry| StoredValue { revision: entry.revision, bytes: entry.value.into() };
    Ok(entry.filter(is_present).map(stored))
}

async fn list_keys(bucket: &kv::Store) -> Result<Vec<String>, NatsError> {
    use futures_util::TryStreamExt;
    const WHAT: &str = "list the keys";
    let keys = with_timeout(WHAT, bucket.keys()).await?;
    let mut keys: Vec<String> = with_timeout(WHAT, keys.try_collect::<Vec<_>>()).await?;
    keys.sort_unstable();
    Ok(keys)
}

/// Writes a value if `revision` is its current one. Revision 0 stands for a key that has no value
/// or a deleted one.
async fn compare_and_set(
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
        Ok(Err((false, why))) => Err(request_error(WHAT, why)),
        Err(_) => Err(NatsError::Timeout(WHAT)),
    }
}
