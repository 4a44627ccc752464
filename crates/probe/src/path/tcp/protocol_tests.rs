//! Messages there and back, and what is none.

use proptest::prelude::*;

use super::*;

fn hello() -> impl Strategy<Value = TcpHello> {
    let what = (0..CONNECTION_JOBS.len(), 0_u16..1 << ConnectionFlags::COUNT, any::<[u32; 6]>());
    what.prop_map(|(work, flags, words)| {
        let [request_bytes, head_bytes, body_bytes, batch, time_ms, warm_up_ms] = words;
        TcpHello {
            job: CONNECTION_JOBS[work],
            flags: ConnectionFlags::from_bits(flags).unwrap(),
            request_bytes,
            head_bytes,
            body_bytes,
            batch,
            time_ms,
            warm_up_ms,
        }
    })
}

proptest! {
    #[test]
    fn a_greeting_is_read_as_it_was_written(hello in hello()) {
        prop_assert_eq!(TcpHello::parse(&hello.emit()), Some(hello));
    }

    #[test]
    fn any_greeting_that_is_read_is_written_alike(bytes: [u8; HELLO_LEN]) {
        let mut bytes = bytes;
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8] = VERSION;
        if let Some(hello) = TcpHello::parse(&bytes) {
            prop_assert_eq!(hello.emit(), bytes);
        }
    }

    #[test]
    fn a_report_is_read_as_it_was_written(
        longs: [u64; 5],
        words: [u32; 9],
        bound in 0..BYTE_BUDGETS.len(),
    ) {
        let at = |place: usize| u64::from(words[place]);
        let report = FarEndReport {
            bytes: longs[0],
            duration_ns: longs[1],
            exchanges: longs[2],
            service_max_ns: longs[3],
            held_samples: HeldDataSampleCounts { nagle: at(0), window: at(1), cork: at(2), delivered: at(3) },
            tcp: TcpInfoSummary {
                cwnd: at(4),
                mss_bytes: at(5),
                rtt_ns: at(6) * 1_000,
                retransmitted: at(7),
                ato_ns: at(8) * 1_000,
            },
            exhausted_budget: BYTE_BUDGETS[bound],
            budget_bytes: longs[4],
        };
        prop_assert_eq!(FarEndReport::parse(&report.emit()), Some(report));
    }

    #[test]
    fn any_facts_are_read_and_written_again(text: Vec<u8>) {
        let end = parse_facts(&text);
        let written = format_facts(&end);
        prop_assert!(written.len() <= FACTS_MAX);
        prop_assert_eq!(parse_facts(&written), end);
    }
}

#[test]
fn the_bytes_are_at_the_offsets_of_the_table() {
    let flags = ConnectionFlags { no_delay: true, observe: true, ..ConnectionFlags::default() };
    let hello = TcpHello {
        job: ConnectionJob::Exchange,
        flags,
        request_bytes: 20,
        head_bytes: 0x0102_0304,
        body_bytes: 0,
        batch: 1,
        time_ms: 1_000,
        warm_up_ms: 5,
    };
    let bytes = hello.emit();
    assert_eq!(&bytes[..12], b"horo-tcp\x01\x01\x00\x81");
    assert_eq!((&bytes[12..20], bytes[35]), (&[0, 0, 0, 20, 1, 2, 3, 4][..], 5));
}

#[test]
fn what_is_no_message_is_refused() {
    let mut bytes = [0; HELLO_LEN];
    assert_eq!(TcpHello::parse(&bytes), None);
    bytes[..8].copy_from_slice(&MAGIC);
    assert_eq!(TcpHello::parse(&bytes), None, "version");
    bytes[8] = VERSION;
    assert!(TcpHello::parse(&bytes).is_some());
    for (offset, wrong) in [(9, 4), (10, 2), (39, 1)] {
        let mut bytes = bytes;
        bytes[offset] = wrong;
        assert_eq!(TcpHello::parse(&bytes), None, "{offset}");
    }
    let welcome =
        TcpWelcome { verdict: AdmissionVerdict::ConnectionLimit, facts_bytes: 7, limit: 64 };
    assert_eq!(TcpWelcome::parse(&welcome.emit()), Some(welcome));
    let long = TcpWelcome { facts_bytes: FACTS_MAX as u16 + 1, ..welcome };
    assert_eq!(TcpWelcome::parse(&long.emit()), None);
    assert_eq!(FarEndReport::parse(&[0; REPORT_LEN]), None);
    let report =
        FarEndReport { exhausted_budget: Some(ByteBudgetKind::Hour), ..FarEndReport::default() }
            .emit();
    assert_eq!(
        (report[76], FarEndReport::parse(&report).unwrap().exhausted_budget),
        (2, Some(ByteBudgetKind::Hour))
    );
    for offset in [76, 77] {
        let mut report = report;
        report[offset] = 3;
        assert_eq!(FarEndReport::parse(&report), None, "{offset}");
    }
}

#[test]
fn facts_that_a_terminal_would_act_upon_are_harmless() {
    let end = parse_facts(b"cpu=\x1b[31mred\nmtu=x\nmtu\n=\nnode=\n\xffkernel=6\nkernel=6.1");
    assert_eq!(end.cpu.as_deref(), Some("[31mred"));
    assert_eq!((end.mtu, end.hostname), (None, None));
    assert_eq!(end.kernel.as_deref(), Some("6.1"));
}
