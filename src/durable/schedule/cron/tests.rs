use super::*;

/// Returns the ticks after a local time in a zone. Each consists of its day, its local time and its offset.
fn ticks(expression: &str, zone: &str, after: &str, count: usize) -> Vec<String> {
    let ticks = CronTicks::new(expression, zone).unwrap();
    let zone = TimeZone::get(zone).unwrap();
    let after: jiff::civil::DateTime = after.parse().unwrap();
    let after = zone.to_ambiguous_zoned(after).earlier().unwrap();
    let mut time = after.timestamp().as_millisecond() as u64;
    let mut found = Vec::new();
    for _ in 0..count {
        time = ticks.next_after(time).unwrap();
        let tick = Timestamp::from_millisecond(time as i64).unwrap();
        let tick = tick.to_zoned(zone.clone());
        found.push(tick.strftime("%d %H:%M%z").to_string());
    }
    found
}

/// The documentation says what happens when clocks are set, so a new version of a dependency must not change it.
#[test]
fn ticks_are_as_documented_where_clocks_are_set() {
    let berlin = "Europe/Berlin";
    let new_york = "America/New_York";
    for (expression, zone, after, expected) in [
        // A fixed time that is skipped fires right after the gap.
        (
            "30 2 * * *",
            berlin,
            "2026-03-28T00:00",
            ["28 02:30+0100", "29 03:00+0200", "30 02:30+0200"],
        ),
        // A fixed time that occurs twice fires at its first occurrence.
        (
            "30 2 * * *",
            berlin,
            "2026-10-24T00:00",
            ["24 02:30+0200", "25 02:30+0200", "26 02:30+0100"],
        ),
        // Other expressions do not fire for skipped times, and fire at both occurrences of a time that occurs twice.
        (
            "*/20 * * * *",
            berlin,
            "2026-03-29T01:30",
            ["29 01:40+0100", "29 03:00+0200", "29 03:20+0200"],
        ),
        (
            "*/30 * * * *",
            berlin,
            "2026-10-25T02:15",
            ["25 02:30+0200", "25 02:00+0100", "25 02:30+0100"],
        ),
        (
            "0 * * * *",
            new_york,
            "2026-03-08T00:30",
            ["08 01:00-0500", "08 03:00-0400", "08 04:00-0400"],
        ),
        (
            "0 * * * *",
            new_york,
            "2026-11-01T00:30",
            ["01 01:00-0400", "01 01:00-0500", "01 02:00-0500"],
        ),
        // The gap is at midnight, or lasts half an hour.
        (
            "0 0 * * *",
            "America/Santiago",
            "2026-09-05T12:00",
            ["06 01:00-0300", "07 00:00-0300", "08 00:00-0300"],
        ),
        (
            "15 2 * * *",
            "Australia/Lord_Howe",
            "2026-10-03T12:00",
            ["04 02:30+1100", "05 02:15+1100", "06 02:15+1100"],
        ),
        (
            "0 0 31 * *",
            "UTC",
            "2026-01-31T01:00",
            ["31 00:00+0000", "31 00:00+0000", "31 00:00+0000"],
        ),
    ] {
        assert_eq!(ticks(expression, zone, after, 3), expected, "{expression}");
    }
}

/// In 2011, this zone skipped 30 December. The tick is at the first moment of the next day.
#[test]
fn a_day_that_a_zone_has_skipped_fires_after_it() {
    let expected = ["31 00:00+1400", "30 09:00+1400"];
    let found = ticks("0 9 30 12 *", "Pacific/Apia", "2011-01-01T00:00", 2);
    assert_eq!(found, expected);
}

/// In each zone, the ticks before and after each change of the clock are those that a search through all minutes finds.
#[test]
fn ticks_are_those_of_a_search_through_all_minutes() {
    const HOURS: i64 = 50;
    let expressions = [
        "30 2 * * *",
        "0,30 0,2,14 * * *",
        "15 1-3 * * *",
        "*/20 2 * * *",
    ];
    let running = ["*/20 * * * *", "5 * * * *", "59 */3 * * *"];
    for zone in ZONES {
        let changes = TimeZone::get(zone).unwrap();
        let start: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        for change in changes.following(start).take(2) {
            let from = change.timestamp().as_second() / 3600 * 3600 - HOURS / 2 * 3600;
            for (expression, is_fixed) in expressions
                .map(|it| (it, true))
                .into_iter()
                .chain(running.map(|it| (it, false)))
            {
                let ticks = CronTicks::new(expression, zone).unwrap();
                let expected = search(&ticks, is_fixed, from, HOURS * 60);
                let mut found = Vec::new();
                let mut second = from;
                while let Some(next) = ticks.next_after_second(second) {
                    if next >= from + HOURS * 3600 {
                        break;
                    }
                    found.push(next);
                    second = next;
                }
                assert!(found.len() > 1);
                assert_eq!(found, expected, "{expression} in {zone} at {change:?}");
                assert_found_from_each_minute(&ticks, &expected, change.timestamp().as_second());
            }
        }
    }
}

/// Asserts that a search finds the next of these ticks from each minute within three hours of a time.
fn assert_found_from_each_minute(ticks: &CronTicks, all: &[i64], time: i64) {
    for minute in -180..180 {
        let second = time + 60 * minute;
        let next = all.iter().copied().find(|&tick| tick > second);
        if next.is_some() {
            assert_eq!(ticks.next_after_second(second), next, "{ticks:?} {second}");
        }
    }
}

/// Returns the minutes after `from` in which an expression fires. If its hour is fixed, each local time fires in the first minute
/// in which the clock shows that time or a later one.
fn search(ticks: &CronTicks, is_fixed: bool, from: i64, minutes: i64) -> Vec<i64> {
    let local = |second| second + ticks.offset(second).unwrap();
    let fires = |local: i64| ticks.next_local(local - 1) == Some(local);
    // A local time that the clock has shown before the search begins has fired.
    let mut shown = (0..24 * 60)
        .map(|nth| local(from - 60 * nth))
        .max()
        .unwrap();
    let mut found = Vec::new();
    for second in (1..minutes).map(|nth| from + 60 * nth) {
        let fires = match is_fixed {
            true => (shown / 60 + 1..=local(second) / 60).any(|minute| fires(60 * minute)),
            false => fires(local(second)),
        };
        shown = shown.max(local(second));
        found.extend(fires.then_some(second));
    }
    found
}

const ZONES: [&str; 8] = [
    "Europe/Berlin",
    "America/New_York",
    "Australia/Lord_Howe",
    "America/Santiago",
    "Africa/Casablanca",
    "Asia/Tehran",
    "Asia/Kathmandu",
    "UTC",
];

#[test]
fn each_tick_is_later_than_the_one_before() {
    // Expressions with many ticks are tested over fewer years.
    let expressions = [
        ("30 2 * * *", 10),
        ("0 0 * * *", 10),
        ("59 1 * * *", 10),
        ("15 2 * * 7", 10),
        ("0 3 1 * *", 10),
        ("0 0 L * *", 10),
        ("0 9 * * MON#2", 10),
        ("30 8-17 * * MON-FRI", 2),
        ("0 */6 * * *", 2),
        ("*/30 * * * *", 1),
    ];
    for zone in ZONES {
        for (expression, years) in expressions {
            let ticks = CronTicks::new(expression, zone).unwrap();
            let (mut time, start) = (1_767_225_600_000, 1_767_225_600_000);
            let mut count = 0;
            while time < start + years * 365 * 24 * 3600 * 1000 {
                let next = ticks.next_after(time).unwrap();
                assert!(next > time, "{zone} {expression} {time}");
                (time, count) = (next, count + 1);
            }
            assert!(count >= years * 12, "{zone} {expression} {count}");
        }
    }
}

#[test]
fn the_last_tick_is_one_that_a_search_forwards_finds() {
    for zone in ZONES {
        for expression in ["30 2 * * *", "*/20 * * * *", "0 * * * *", "0 0 1 1 *"] {
            let ticks = CronTicks::new(expression, zone).unwrap();
            let start = 1_774_000_000_000;
            // This is the end of March, when clocks are set in Europe.
            let (mut tick, mut count) = (ticks.next_after(start).unwrap(), 0);
            while count < 300 {
                let next = ticks.next_after(tick).unwrap();
                for time in [tick, tick + 1_000, tick + (next - tick) / 2, next - 1] {
                    assert_eq!(ticks.last_until(time, start), Some(tick), "{zone} {time}");
                }
                (tick, count) = (next, count + 1);
            }
            assert_eq!(ticks.last_until(tick, tick), None);
            assert_eq!(ticks.last_until(start, start), None);
        }
    }
}

/// Rare ticks take long to find, so this must not search for each time at which the clock is set.
#[test]
fn a_rare_tick_is_found_past_many_changes_of_the_clock() {
    for zone in ZONES {
        for (expression, first) in [("0 * 29 2 *", "29 00:00"), ("*/30 * 29 2 *", "29 00:00")] {
            let found = ticks(expression, zone, "2025-03-01T00:00", 2);
            assert!(found[0].starts_with(first), "{zone} {found:?}");
            let ticks = CronTicks::new(expression, zone).unwrap();
            let later = ticks.next_after(1_772_000_000_000).unwrap();
            let last = ticks.last_until(later + 30 * 3600 * 1000, 1_772_000_000_000);
            assert!(last >= Some(later + 23 * 3600 * 1000), "{zone}");
        }
    }
}

#[test]
fn an_invalid_expression_or_zone_is_refused() {
    for expression in [
        "",
        "0 3 * *",
        "0 25 * * *",
        "60 3 * * *",
        "0 3 * * * * * *",
        "0 0 3 * * * 2030",
        "@daily",
        "x",
        // The parser accepts these, but they are slow or misleading.
        "* , * * * *",
        "0,,1 3 * * *",
        "0 3 15W * *",
        "0 3 * * +MON",
        "? 3 * * *",
        "0 JAN * * *",
        &format!("{}1 3 * * *", "1,".repeat(200)),
    ] {
        let error = Cron::parse(expression, "UTC").unwrap_err().to_string();
        assert!(error.contains("use five fields"), "{expression}: {error}");
    }
    for zone in ["Europe/Bielefeld", "Etc/Unknown", ""] {
        let error = Cron::parse("0 3 * * *", zone).unwrap_err();
        assert!(error.to_string().contains("Europe/Berlin"), "{error}");
    }
}

#[test]
fn the_spelling_does_not_change_a_definition() {
    let one = Cron::parse(" 0  3 * * *\t", "UTC").unwrap();
    assert_eq!(one, Cron::parse("0 3 * * *", "UTC").unwrap());
    // The spelling of the zone does not change it either.
    let berlin = |zone| Cron::parse("0 3 * * *", zone).unwrap();
    assert_eq!(berlin("europe/berlin"), berlin("Europe/Berlin"));
}
