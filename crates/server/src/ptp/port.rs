//! One port: what it is, what becomes of a message that it receives, and what the status tells of
//! it.

use horolog_time::{Monotonic, Span, Timestamp};
use horolog_wire::ptp::monitor::{Current, Parent, Response};
use horolog_wire::ptp::{Body, Header, Message, MessageType, PortIdentity, PtpTimestamp};

use super::compose::{self, ADDRESS_LEN_MAX, check, interval};
use super::foreign::{Foreign, ForeignMasters};
use super::grants::{Client, Grants};
use super::streams::Stream;
use super::{
    Arrival, Asked, ClockSettings, ClockState, Counts, DelayMechanism, Destination, FastPort,
    Outbox, PortSettings, PortState, Refusal, Transport,
};

/// One port of the clock.
#[derive(Clone, Debug)]
pub struct Port {
    pub(super) clock: ClockSettings,
    pub(super) settings: PortSettings,
    pub(super) identity: PortIdentity,
    pub(super) state: PortState,
    /// Until when it listens for others after its start, while that is not over.
    pub(super) listening_until: Option<Timestamp<Monotonic>>,
    /// How long it listens.
    pub(super) listening: Span,
    /// The clock as it was when it was last usable.
    pub(super) scale: Option<ClockState>,
    pub(super) foreign: ForeignMasters,
    pub(super) grants: Grants,
    pub(super) announce: Stream,
    pub(super) sync: Stream,
    pub(super) signaling_id: u16,
    pub(super) counts: Counts,
}

/// A port as it is told of in the status.
#[derive(Clone, PartialEq, Debug)]
pub struct PortView {
    /// Which port it is.
    pub identity: PortIdentity,
    /// Its state.
    pub state: PortState,
    /// The better master to which it yields.
    pub better: Option<Foreign>,
    /// All masters that it remembers, this one among them.
    pub foreign: Vec<Foreign>,
    /// How many grants are held.
    pub grants: usize,
    /// How many messages a second they add up to.
    pub granted_rate: f64,
    /// What it counted.
    pub counts: Counts,
}

impl Port {
    /// A port that starts at `now` and listens at first. One that speaks to no group hears of no
    /// other master there, and so does not wait.
    #[must_use]
    pub fn new(
        clock: ClockSettings,
        mut settings: PortSettings,
        now: Timestamp<Monotonic>,
    ) -> Self {
        settings.address.truncate(ADDRESS_LEN_MAX);
        let timeout = i64::from(settings.announce_receipt_timeout);
        let listening = interval(settings.log_announce).as_ns().saturating_mul(timeout);
        let listening = if settings.multicast { Span::from_ns(listening) } else { Span::ZERO };
        let foreign = ForeignMasters::new(
            clock.identity,
            settings.log_announce,
            settings.announce_receipt_timeout,
        );
        Self {
            identity: settings.identity(&clock),
            state: PortState::Listening,
            listening_until: Some(now + listening),
            listening,
            scale: None,
            foreign,
            grants: Grants::new(settings.unicast),
            announce: Stream::new(settings.log_announce, now),
            sync: Stream::new(settings.log_sync, now),
            signaling_id: 0,
            counts: Counts::default(),
            clock,
            settings,
        }
    }

    /// Its state.
    #[must_use]
    pub const fn state(&self) -> PortState {
        self.state
    }

    /// What the status tells of it.
    #[must_use]
    pub fn view(&self, clock: &ClockState) -> PortView {
        PortView {
            identity: self.identity,
            state: self.state,
            better: self.better(clock).copied(),
            foreign: self.foreign.records().to_vec(),
            grants: self.grants.len(),
            granted_rate: self.grants.rate(),
            counts: self.counts.clone(),
        }
    }

    /// What is to be known to answer a `Delay_Req` as this port; `None` while it does not answer
    /// any.
    #[must_use]
    pub fn fast(&self, clock: &ClockState) -> Option<FastPort<'_>> {
        let answers = clock.usable
            && self.state == PortState::Master
            && self.settings.delay == DelayMechanism::EndToEnd;
        answers.then(|| FastPort {
            identity: self.identity,
            domain: self.clock.domain,
            sdo_id: self.clock.sdo_id,
            log_min_delay_req: self.settings.log_min_delay_req,
            multicast: self.settings.multicast,
            hybrid: self.settings.hybrid,
            monitor: self.settings.monitor.then(|| self.monitor(clock)),
        })
    }

    /// What NetSync Monitor is told: a grandmaster is its own parent (clause 8.2.3).
    fn monitor(&self, clock: &ClockState) -> Response<'_> {
        Response {
            port_state: self.state as u8,
            protocol: self.settings.transport.protocol(),
            address: &self.settings.address,
            parent: self.parent(clock),
            current: Current::default(),
            utc_offset: clock.utc_offset,
            time_flags: clock.time_flags(),
            time_source: clock.time_source,
            last_sync: PtpTimestamp::ZERO,
        }
    }

    /// The parent data set of a grandmaster (clauses 8.2.3 and 9.3.5, table 30).
    pub(super) const fn parent(&self, clock: &ClockState) -> Parent {
        Parent {
            port: PortIdentity { clock: self.clock.identity, port: 0 },
            has_statistics: false,
            variance: UNKNOWN_VARIANCE,
            phase_change_rate: UNKNOWN_PHASE_CHANGE_RATE,
            grandmaster: clock.grandmaster(&self.clock),
        }
    }

    /// Takes a message.
    pub fn receive(
        &mut self,
        arrival: &Arrival<'_>,
        clock: &ClockState,
        now: Timestamp<Monotonic>,
        out: &mut impl Outbox,
    ) {
        if let Err(reason) = self.judge(arrival, clock, now, out) {
            self.counts.count_refused(reason);
        }
    }

    fn judge(
        &mut self,
        arrival: &Arrival<'_>,
        clock: &ClockState,
        now: Timestamp<Monotonic>,
        out: &mut impl Outbox,
    ) -> Result<(), Refusal> {
        let (message, _) = Message::parse(arrival.bytes)?;
        self.counts.count_received(message.body.kind());
        let kind = message.kind().ok_or(Refusal::Type)?;
        if self.settings.transport != Transport::Ethernet && arrival.event != kind.is_event() {
            return Err(Refusal::Channel);
        }
        check(&message, (self.clock.domain, self.clock.sdo_id), self.identity)?;
        match message.body {
            Body::Announce(_) => self.hear(&message, arrival.group, clock, now, out),
            Body::DelayReq(_) => self.delay_request(&message, arrival, clock, now, out),
            Body::PdelayReq(_) => self.peer_delay_request(&message, arrival, clock, out),
            Body::Signaling(target) => self.signaling(&message, target, arrival, clock, now, out),
            Body::Management(addressee) => {
                self.management(&message, &addressee, arrival, clock, out)
            }
            _ => Err(Refusal::Unwanted),
        }
    }

    fn delay_request(
        &mut self,
        request: &Message<'_>,
        arrival: &Arrival<'_>,
        clock: &ClockState,
        now: Timestamp<Monotonic>,
        out: &mut impl Outbox,
    ) -> Result<(), Refusal> {
        if self.settings.delay != DelayMechanism::EndToEnd {
            return Err(Refusal::Mechanism);
        }
        let client = Client::new(arrival.from, request.header.source);
        let asked = Asked {
            group: arrival.group,
            granted: self.grants.holds(client, MessageType::DelayResp, now),
            admitted: arrival.admitted,
        };
        let fast = self.fast(clock).ok_or(Refusal::State)?;
        let answer = fast.answer(request, asked, arrival.received)?;
        let to = if arrival.group { Destination::Group } else { Destination::To(arrival.from) };
        self.counts.count_sent(MessageType::DelayResp as u8);
        out.send(to, false, false, answer.bytes());
        if answer.owes_sync {
            self.send_sync(to, request.header.sequence_id, out);
        }
        Ok(())
    }

    /// When something is due next, apart from what the clock's own state brings about: whoever
    /// calls [`Port::due`] does so as well when that changes.
    #[must_use]
    pub fn next_due(&self) -> Timestamp<Monotonic> {
        let forever = Timestamp::from_ns(i64::MAX);
        let streams = match self.state {
            PortState::Master if self.settings.multicast => self.announce.next.min(self.sync.next),
            PortState::Listening => self.listening_until.unwrap_or(forever),
            PortState::Master | PortState::Passive | PortState::Faulty => forever,
        };
        let others = [self.foreign.next_expiry(), self.grants.next_due()];
        others.into_iter().flatten().fold(streams, Timestamp::min)
    }

    /// The header of a message of this port.
    pub(super) fn header(&self, to: Destination, sequence_id: u16) -> Header {
        compose::header(&self.clock, self.identity, compose::unicast_flag(to), sequence_id)
    }
}

/// What the parent data set says while nothing is measured (clauses 8.2.3.4 and 8.2.3.5).
const UNKNOWN_VARIANCE: u16 = 0xffff;
const UNKNOWN_PHASE_CHANGE_RATE: u32 = 0x7fff_ffff;
