//! What a port answers to management: it tells, and changes nothing (IEEE 1588-2019, clause 15).

use horolog_wire::ptp::management::data::{
    ClockDescription, Current, Data, DefaultDataSet, PortDataSet, TimeProperties, emit_text, id,
};
use horolog_wire::ptp::management::{
    Action, Addressee, Managed, REFUSAL_TLV_LEN, RefusalCode, Refused,
};
use horolog_wire::ptp::message::MANAGEMENT_LEN;
use horolog_wire::ptp::{Body, Flags, Message, MessageType, PtpTimestamp, TimeInterval, VERSION};

use super::{Arrival, ClockState, Destination, Outbox, Port, Refusal};

/// More than the longest data: a description whose only text that is configured has 256 bytes.
const DATA_LEN_MAX: usize = 512;
const SUFFIX_LEN_MAX: usize = DATA_LEN_MAX + 8;

/// What the port's physical layer is called (clause 15.5.3.1.2.3).
const PHYSICAL_LAYER: &str = "IEEE 802.3";
/// Maker; model; instance.
const PRODUCT: &str = "Horolog;horolog;";
/// Hardware; firmware; software.
const REVISION: &str = concat!(";;", env!("CARGO_PKG_VERSION"));

/// What is told: its first bytes, so many of them.
struct Told {
    bytes: [u8; DATA_LEN_MAX],
    length: usize,
}

impl Told {
    /// What `emit` writes and returns the length of.
    fn by(emit: impl FnOnce(&mut [u8]) -> usize) -> Self {
        let mut bytes = [0; DATA_LEN_MAX];
        let length = emit(&mut bytes);
        Self { bytes, length }
    }

    fn data(data: &impl Data) -> Self {
        Self::by(|buffer| data.emit(buffer))
    }

    /// One byte, and another that makes the length even.
    fn byte(value: u8) -> Self {
        Self::pair(value, 0)
    }

    fn pair(first: u8, second: u8) -> Self {
        Self::by(|buffer| {
            buffer[..2].copy_from_slice(&[first, second]);
            2
        })
    }
}

impl Port {
    /// Answers a question, and refuses what would change something. The answer goes to where the
    /// question went: to the group, or to who asked.
    pub(super) fn management(
        &mut self,
        message: &Message<'_>,
        addressee: &Addressee,
        arrival: &Arrival<'_>,
        clock: &ClockState,
        out: &mut impl Outbox,
    ) -> Result<(), Refusal> {
        if !addressee.target.targets(self.identity) {
            return Err(Refusal::Target);
        }
        if arrival.group && !self.settings.multicast {
            return Err(Refusal::Group);
        }
        let tlv = message.tlvs().flatten().next().ok_or(Refusal::Length)?;
        let asked = Managed::from_tlv(&tlv).ok_or(Refusal::Unwanted)??;
        let action = match addressee.action {
            Action::Get | Action::Set => Action::Response,
            Action::Command => Action::Acknowledge,
            Action::Response | Action::Acknowledge | Action::Reserved(_) => {
                return Err(Refusal::Unwanted);
            }
        };
        let mut suffix = [0; SUFFIX_LEN_MAX];
        let length = match self.answer(addressee.action, asked.id, clock, out.now_ptp()) {
            Ok(told) => {
                Managed { id: asked.id, data: &told.bytes[..told.length] }.emit(&mut suffix)
            }
            Err(code) => Refused { code, id: asked.id }.emit(&mut suffix),
        };
        let to = if arrival.group { Destination::Group } else { Destination::To(arrival.from) };
        let answer = Message {
            header: self.header(to, message.header.sequence_id),
            body: Body::Management(Addressee {
                target: message.header.source,
                // As far as the question came (clause 15.3.3).
                starting_hops: addressee.starting_hops.saturating_sub(addressee.hops),
                hops: addressee.starting_hops.saturating_sub(addressee.hops),
                action,
            }),
            suffix: &suffix[..length],
        };
        if answer.len() > message.len() && !arrival.on_link {
            return Err(Refusal::Amplifying);
        }
        let mut buffer = [0; MANAGEMENT_LEN + SUFFIX_LEN_MAX];
        let length = answer.emit(&mut buffer);
        self.counts.count_sent(MessageType::Management as u8);
        out.send(to, false, false, &buffer[..length]);
        Ok(())
    }

    fn answer(
        &self,
        action: Action,
        asked: u16,
        clock: &ClockState,
        now: PtpTimestamp,
    ) -> Result<Told, RefusalCode> {
        match (action, self.tell(asked, clock, now)) {
            _ if asked == id::NULL_MANAGEMENT => Ok(Told::by(|_| 0)),
            _ if !id::is_known(asked) => Err(RefusalCode::NoSuchId),
            (Action::Set, _) => Err(RefusalCode::NotSetable),
            (Action::Get, Some(told)) => Ok(told),
            _ => Err(RefusalCode::NotSupported),
        }
    }

    /// What is told of the clock and of this port (table 59); `None` where that is nothing.
    fn tell(&self, asked: u16, clock: &ClockState, now: PtpTimestamp) -> Option<Told> {
        let (own, settings) = (&self.clock, &self.settings);
        let flags = |mask: Flags| clock.time_flags() & mask.0 as u8;
        let traceable = Flags::TIME_TRACEABLE.with(Flags::FREQUENCY_TRACEABLE);
        Some(match asked {
            id::CLOCK_DESCRIPTION => self.describe(),
            id::USER_DESCRIPTION => Told::by(|buffer| emit_text(&own.user, buffer)),
            id::DEFAULT_DATA_SET => Told::data(&self.default_data_set(clock)),
            // A grandmaster is no steps from itself.
            id::CURRENT_DATA_SET => Told::data(&Current::default()),
            id::PARENT_DATA_SET => Told::data(&self.parent(clock)),
            id::TIME_PROPERTIES_DATA_SET => Told::data(&TimeProperties {
                utc_offset: clock.utc_offset,
                flags: clock.time_flags(),
                time_source: clock.time_source,
            }),
            id::PORT_DATA_SET => Told::data(&self.port_data_set()),
            id::PRIORITY1 => Told::byte(own.priority1),
            id::PRIORITY2 => Told::byte(own.priority2),
            id::DOMAIN => Told::byte(own.domain),
            id::SLAVE_ONLY => Told::byte(0),
            id::LOG_ANNOUNCE_INTERVAL => Told::byte(settings.log_announce.cast_unsigned()),
            id::ANNOUNCE_RECEIPT_TIMEOUT => Told::byte(settings.announce_receipt_timeout),
            id::LOG_SYNC_INTERVAL => Told::byte(settings.log_sync.cast_unsigned()),
            id::VERSION_NUMBER => Told::byte(VERSION),
            // A time that may be wrong is not told.
            id::TIME if clock.usable => Told::data(&now),
            id::CLOCK_ACCURACY => Told::byte(clock.accuracy),
            id::UTC_PROPERTIES => {
                let leaps = Flags::LEAP_61.with(Flags::LEAP_59).with(Flags::UTC_OFFSET_VALID);
                let (utc_offset, flags) = (clock.utc_offset, flags(leaps));
                Told::data(&TimeProperties { utc_offset, flags, time_source: 0 })
            }
            id::TRACEABILITY_PROPERTIES => Told::byte(flags(traceable)),
            id::TIMESCALE_PROPERTIES => Told::pair(flags(Flags::PTP_TIMESCALE), clock.time_source),
            id::UNICAST_NEGOTIATION_ENABLE => Told::byte(u8::from(settings.unicast.grants_max > 0)),
            id::MASTER_ONLY => Told::byte(1),
            id::DELAY_MECHANISM => Told::byte(settings.delay.number()),
            id::LOG_MIN_PDELAY_REQ_INTERVAL => {
                Told::byte(settings.log_min_delay_req.cast_unsigned())
            }
            _ => return None,
        })
    }

    fn describe(&self) -> Told {
        let description = ClockDescription {
            kinds: ClockDescription::ORDINARY,
            physical_layer: PHYSICAL_LAYER,
            physical_address: &self.settings.mac.0,
            protocol: self.settings.transport.protocol(),
            protocol_address: &self.settings.address,
            manufacturer: [0; 3],
            product: PRODUCT,
            revision: REVISION,
            user: &self.clock.user,
            profile: self.clock.profile.identity(),
        };
        Told::by(|buffer| description.emit(buffer))
    }

    fn default_data_set(&self, clock: &ClockState) -> DefaultDataSet {
        DefaultDataSet {
            two_step: !self.settings.one_step,
            slave_only: false,
            ports: self.clock.ports,
            clock: clock.grandmaster(&self.clock),
            domain: self.clock.domain,
        }
    }

    fn port_data_set(&self) -> PortDataSet {
        PortDataSet {
            port: self.identity,
            state: self.state as u8,
            log_min_delay_req: self.settings.log_min_delay_req,
            // A master does not measure it.
            peer_delay: TimeInterval::default(),
            log_announce: self.settings.log_announce,
            announce_receipt_timeout: self.settings.announce_receipt_timeout,
            log_sync: self.settings.log_sync,
            delay_mechanism: self.settings.delay.number(),
            log_min_pdelay_req: self.settings.log_min_delay_req,
            version: VERSION,
        }
    }
}

const _: () = assert!(REFUSAL_TLV_LEN <= SUFFIX_LEN_MAX);
