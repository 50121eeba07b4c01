//! The Gregorian calendar as arithmetic on days. Pure; knows no offsets and no text but months' names.

pub(crate) const SECS_PER_DAY: i64 = 86_400;
pub(crate) const MONTHS: [&[u8; 3]; 12] = [
    b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec",
];

/// Days since 1970-01-01 of a day of the Gregorian calendar; `None` when there is no such day.
///
/// By Howard Hinnant, "chrono-compatible low-level date algorithms", `days_from_civil`.
pub fn unix_from_civil(year: u64, month: u64, day: u64) -> Option<i64> {
    let leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let last = match month {
        2 => 28 + u64::from(leap),
        4 | 6 | 9 | 11 => 30,
        1 | 3 | 5 | 7 | 8 | 10 | 12 => 31,
        _ => return None,
    };
    if day == 0 || day > last || !(1..=9_999).contains(&year) {
        return None;
    }
    let march_year = year - u64::from(month <= 2);
    let (era, year_of_era) = (march_year / 400, march_year % 400);
    let march_month = (month + 9) % 12;
    let day_of_year = (153 * march_month + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    Some((era * 146_097 + day_of_era) as i64 - 719_468)
}

/// Year, month, day, hour, minute and second of a number of seconds since 1970.
///
/// From the same work, `civil_from_days`: years begin in March, so that the leap day is their last.
pub fn civil_from_unix(secs: u64) -> [u64; 6] {
    let days = secs / SECS_PER_DAY as u64 + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 {
        march_month + 3
    } else {
        march_month - 9
    };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    [
        year,
        month,
        day,
        secs / 3_600 % 24,
        secs / 60 % 60,
        secs % 60,
    ]
}
