//! Tests of the limiter on times made for them.

use std::net::Ipv4Addr;

use horolog_time::Span;
use proptest::prelude::*;

use super::*;

const KEY: AddressHashKey = AddressHashKey([5, 6]);
const START: Timestamp<Monotonic> = Timestamp::from_ns(1_000_000_000_000);

fn at_ms(ms: i64) -> Timestamp<Monotonic> {
    START + Span::from_ms(ms)
}

fn client(number: u32) -> IpAddr {
    Ipv4Addr::from_bits(0x0a00_0000 + number).into()
}

fn limiter(config: &LimitsConfig) -> Limiter {
    Limiter::new(config, KEY).unwrap()
}

fn rate(rate: f64, burst: u32) -> LimitsConfig {
    LimitsConfig { rate: Some(rate), burst, ..LimitsConfig::default() }
}

/// How many of `count` plain requests at once are let through.
fn admitted(limiter: &Limiter, ip: IpAddr, count: u32, ms: i64) -> u32 {
    let judge = |_| limiter.judge(ip, RequestLengthClass::Plain, at_ms(ms)) == Admission::Admit;
    (0..count).map(judge).map(u32::from).sum()
}

#[test]
fn a_burst_passes_and_what_exceeds_the_rate_does_not() {
    let limiter = limiter(&rate(2.0, 8));
    assert_eq!(admitted(&limiter, client(1), 20, 0), 8);
    assert_eq!(admitted(&limiter, client(1), 5, 100), 0);
    // Intervals are rounded down to 1,024 ns.
    assert_eq!(admitted(&limiter, client(1), 5, 500), 1);
    assert_eq!(admitted(&limiter, client(1), 5, 1_500), 2);
    assert_eq!(admitted(&limiter, client(1), 20, 60_000), 8, "no more than a burst is saved up");
    assert_eq!(admitted(&limiter, client(2), 20, 60_000), 8, "another client");
}

#[test]
fn a_client_that_was_idle_for_months_is_admitted() {
    let limiter = limiter(&rate(2.0, 8));
    assert_eq!(admitted(&limiter, client(1), 20, 0), 8);
    for days in [1, 60, 103, 104, 105, 1_000] {
        assert_eq!(admitted(&limiter, client(1), 20, days * 86_400_000), 8, "after {days} days");
    }
}

#[test]
fn one_kiss_for_each_answer() {
    let limiter = limiter(&LimitsConfig { kiss_rate: true, ..rate(1.0, 2) });
    let judge = |ms| limiter.judge(client(1), RequestLengthClass::Plain, at_ms(ms));
    let (kiss, dropped) = (Admission::Kiss(KissCode::Rate), Admission::Drop(DropReason::Limited));
    let at_once: Vec<_> = (0..5).map(|_| judge(0)).collect();
    assert_eq!(at_once, [Admission::Admit, Admission::Admit, kiss, dropped, dropped]);
    assert_eq!([judge(1_000), judge(1_000), judge(1_000)], [Admission::Admit, kiss, dropped]);
    let long: Vec<_> =
        (0..3).map(|_| limiter.judge(client(1), RequestLengthClass::Long, at_ms(0))).collect();
    assert_eq!(long, [Admission::Admit, Admission::Admit, dropped], "a bucket apart, and no kiss");
}

#[test]
fn a_prefix_is_one_client() {
    let limiter = limiter(&LimitsConfig { ipv4_prefix: 24, ..rate(1.0, 1) });
    assert_eq!(admitted(&limiter, client(1), 1, 0), 1);
    assert_eq!(admitted(&limiter, client(255), 1, 0), 0);
    assert_eq!(admitted(&limiter, client(256), 1, 0), 1);
    let ipv6 = |text: &str| admitted(&limiter, text.parse().unwrap(), 1, 0);
    assert_eq!((ipv6("fd00::1"), ipv6("fd00::ffff:1"), ipv6("fd00:0:0:1::1")), (1, 0, 1));
    assert_eq!(admitted(&limiter, "::ffff:10.0.0.7".parse().unwrap(), 1, 0), 0, "IPv4, mapped");
}

#[test]
fn new_clients_share_a_bucket_and_known_ones_are_unaffected() {
    let limiter =
        limiter(&LimitsConfig { new_client_rate: Some(100.0), clients: 1 << 12, ..rate(1.0, 8) });
    assert_eq!(admitted(&limiter, client(0), 1, 0), 1);
    let strangers = |ms| (1..10_000).map(|n| admitted(&limiter, client(n), 1, ms)).sum::<u32>();
    assert!((99..=101).contains(&strangers(0)));
    let dropped = limiter.judge(client(20_000), RequestLengthClass::Plain, at_ms(0));
    assert_eq!(dropped, Admission::Drop(DropReason::NewClients));
    assert_eq!(admitted(&limiter, client(0), 8, 0), 7, "who was there before");
    // Some of these are known by now.
    assert!(strangers(500) >= 50);
}

#[test]
fn new_clients_with_long_requests_have_a_bucket_of_their_own() {
    let limiter = limiter(&LimitsConfig { new_client_rate: Some(1.0), ..rate(1.0, 8) });
    let admitted_new = |first: u32, class| {
        let judge = |n| limiter.judge(client(first + n), class, at_ms(0));
        (0..10).filter(|&n| judge(n) == Admission::Admit).count()
    };
    assert_eq!(
        [admitted_new(0, RequestLengthClass::Plain), admitted_new(100, RequestLengthClass::Plain)],
        [2, 0]
    );
    assert_eq!(
        [admitted_new(200, RequestLengthClass::Long), admitted_new(300, RequestLengthClass::Long)],
        [2, 0]
    );
}

#[test]
fn a_slot_is_free_when_its_client_has_long_been_idle() {
    let config =
        LimitsConfig { clients: 4, idle: std::time::Duration::from_mins(1), ..rate(1.0, 1) };
    let limiter = limiter(&config);
    let known = |n, ms| admitted(&limiter, client(n), 2, ms) == 1;
    assert!((0..4).all(|n| known(n, 0)), "four places");
    assert!(!known(9, 1_000), "without a place nobody is limited");
    assert!(known(0, 59_000));
    assert!(known(9, 62_000), "a place that was free");
    assert!(known(0, 63_000), "who was not silent has kept its own");
}

#[test]
fn lists_are_checked_again_when_they_change() {
    let open = LimitsConfig { deny: vec!["192.0.2.0/24".parse().unwrap()], ..rate(1.0, 8) };
    let closed = LimitsConfig { deny: vec!["10.0.0.0/8".parse().unwrap()], ..rate(1.0, 8) };
    let mut limiter = limiter(&open);
    assert_eq!(admitted(&limiter, client(1), 3, 0), 3);
    for change in 0..40 {
        limiter = limiter.successor(&closed);
        let verdict = limiter.judge(client(1), RequestLengthClass::Plain, at_ms(0));
        assert_eq!(verdict, Admission::Drop(DropReason::Denied), "change {change}");
        limiter = limiter.successor(&open);
    }
    assert!(admitted(&limiter, client(1), 9, 0) >= 5);
}

#[test]
fn clients_keep_their_slots_through_changes() {
    let open = LimitsConfig {
        new_client_rate: Some(1.0),
        deny: vec!["192.0.2.0/24".parse().unwrap()],
        ..rate(1.0, 8)
    };
    let closed = LimitsConfig { deny: vec!["10.0.0.0/8".parse().unwrap()], ..open.clone() };
    let mut limiter = limiter(&open);
    assert_eq!(admitted(&limiter, client(1), 1, 0), 1);
    assert_eq!(admitted(&limiter, client(2), 5, 0), 5, "the last newcomer");
    for change in 0..40 {
        limiter = limiter.successor(&open);
        assert_eq!(admitted(&limiter, client(3), 1, 0), 0, "a newcomer, change {change}");
        assert_eq!(limiter.clients(), 2, "change {change}");
    }
    assert_eq!(admitted(&limiter, client(1), 8, 0), 7, "who was silent meanwhile");
    // A verdict is not taken for one of the same epoch long ago.
    for change in 0..40 {
        limiter = limiter.successor(&closed);
        let verdict = limiter.judge(client(2), RequestLengthClass::Plain, at_ms(0));
        assert_eq!(verdict, Admission::Drop(DropReason::Denied), "change {change}");
    }
}

#[test]
fn denied_clients_get_a_kiss_at_a_bounded_rate() {
    let deny = vec!["10.0.0.0/8".parse().unwrap()];
    let limiter = limiter(&LimitsConfig { deny, kiss_deny: true, ..LimitsConfig::default() });
    let kisses = |ms| {
        let judge = |n| limiter.judge(client(n), RequestLengthClass::Plain, at_ms(ms));
        (0..1_000).filter(|&n| judge(n) == Admission::Kiss(KissCode::Deny)).count()
    };
    assert_eq!((kisses(0), kisses(0), kisses(1)), (1, 0, 1));
    let long = limiter.judge(client(1), RequestLengthClass::Long, at_ms(10));
    assert_eq!(long, Admission::Drop(DropReason::Denied));
}

#[test]
fn a_list_finer_than_a_client_is_always_checked() {
    let deny = vec!["fd00::2/128".parse().unwrap()];
    let limiter = limiter(&LimitsConfig { deny, ..rate(10.0, 8) });
    let judge =
        |text: &str| limiter.judge(text.parse().unwrap(), RequestLengthClass::Plain, at_ms(0));
    assert_eq!(judge("fd00::1"), Admission::Admit);
    assert_eq!(judge("fd00::2"), Admission::Drop(DropReason::Denied));
    assert_eq!(judge("fd00::3"), Admission::Admit);
}

#[test]
fn nothing_is_written_for_who_is_over_the_limit() {
    let limiter = limiter(&LimitsConfig { clients: 4, new_client_rate: Some(1.0), ..rate(1.0, 1) });
    let words = || -> Vec<u64> {
        let LimiterState { sets, new_clients, .. } = &*limiter.state;
        let all = sets.iter().flat_map(|set| &set.0).chain(new_clients);
        all.map(|word| word.load(Ordering::Relaxed)).collect()
    };
    let _ = admitted(&limiter, client(1), 1, 0);
    let _ = admitted(&limiter, client(2), 2, 0);
    let before = words();
    assert_eq!(admitted(&limiter, client(1), 10, 1) + admitted(&limiter, client(3), 10, 1), 0);
    assert_eq!(words(), before);
}

#[test]
fn without_limits_and_lists_there_is_no_limiter() {
    assert!(Limiter::new(&LimitsConfig::default(), KEY).is_none());
}

proptest! {
    #[test]
    fn no_client_gets_more_than_its_rate_and_a_burst(
        gaps_ms in prop::collection::vec(0..2_000_i64, 1..200), burst in 1..20_u32) {
        let limiter = limiter(&rate(2.0, burst));
        let (mut now, mut count) = (0, 0);
        for gap in gaps_ms {
            now += gap;
            count += admitted(&limiter, client(1), 1, now);
        }
        prop_assert!(f64::from(count) <= f64::from(burst) + now as f64 / 1e3 * 2.0 * 1.000_01 + 1.0);
    }
}
