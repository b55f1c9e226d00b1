//! What stands behind an equals sign: sizes, times, shares, pairs for reads and writes, in fio's spelling.

use crate::trial::{BlockLength, Law};
use majorfault::{Bytes, Nanos};

/// A size, or a part of one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Amount {
    /// So many bytes.
    Of(u64),
    /// So much percent of the file.
    Percent(f64),
}

impl Amount {
    /// Bytes, where the file has so many.
    pub fn bytes(self, file: u64) -> u64 {
        match self {
            Amount::Of(bytes) => bytes,
            Amount::Percent(percent) => (file as f64 * percent / 100.0) as u64,
        }
    }
}

type Read<T> = Result<T, String>;

/// A number of bytes; terms may be joined by `*` and `/`, `+` and `-`, from left to right within each rank.
pub fn size(text: &str) -> Read<u64> {
    let bare = text.trim().trim_start_matches('(').trim_end_matches(')');
    let sum = bare.split('+').map(product).collect::<Read<Vec<u64>>>()?;
    sum.into_iter().try_fold(0u64, u64::checked_add).ok_or_else(|| format!("\"{text}\" is too large"))
}

/// Factors and divisors.
fn product(text: &str) -> Read<u64> {
    let mut result: u128 = 1;
    for (index, factor) in text.split('*').enumerate() {
        let mut divided = factor.split('/');
        let first = term(divided.next().unwrap_or_default())?;
        result = if index == 0 { first.into() } else { result * u128::from(first) };
        for divisor in divided {
            let divisor = u128::from(term(divisor)?);
            result = result.checked_div(divisor).ok_or_else(|| format!("\"{text}\" divides by zero"))?;
        }
        if result > u128::from(u64::MAX) {
            return Err(format!("\"{text}\" is too large"));
        }
    }
    Ok(result as u64)
}

fn term(text: &str) -> Read<u64> {
    text.trim().parse::<Bytes>().map(|bytes| bytes.0).map_err(|why| why.to_string())
}

/// A size or a percentage.
pub fn amount(text: &str) -> Read<Amount> {
    match text.trim().strip_suffix('%') {
        Some(percent) => match percent.trim().parse::<f64>() {
            Ok(percent) if (0.0..=100.0).contains(&percent) => Ok(Amount::Percent(percent)),
            _ => Err(format!("\"{text}\" is not a percentage from 0% to 100%")),
        },
        None => size(text).map(Amount::Of),
    }
}

/// A whole number; 8k is 8192.
pub fn count(text: &str) -> Read<u64> {
    size(text)
}

/// A number that fits 32 bits and is at least 1.
pub fn count32(text: &str) -> Read<u32> {
    u32::try_from(size(text)?)
        .ok()
        .filter(|count| *count > 0)
        .ok_or_else(|| format!("\"{text}\" is not a number from 1 on"))
}

/// A share of a hundred.
pub fn percent(text: &str) -> Read<u8> {
    text.trim()
        .parse::<u8>()
        .ok()
        .filter(|share| *share <= 100)
        .ok_or_else(|| format!("\"{text}\" is not a number from 0 to 100"))
}

/// A time; without a unit, of `bare` nanoseconds. `h` and `d` are fio's own.
pub fn time(text: &str, bare: u64) -> Read<u64> {
    let text = text.trim();
    let has_unit = |unit: char| text.strip_suffix(unit).and_then(|number| number.parse::<f64>().ok());
    if let Ok(number) = text.parse::<u64>() {
        return number.checked_mul(bare).ok_or_else(|| format!("\"{text}\" is too long"));
    }
    if let Some(hours) = has_unit('h') {
        return Ok((hours * 3.6e12) as u64);
    }
    if let Some(days) = has_unit('d') {
        return Ok((days * 86.4e12) as u64);
    }
    text.parse::<Nanos>().map(|time| time.0).map_err(|why| why.to_string())
}

/// 1 or 0; an option without a value is 1.
pub fn switch(text: Option<&str>) -> Read<bool> {
    match text.map(str::trim) {
        None | Some("1") => Ok(true),
        Some("0") => Ok(false),
        Some(other) => Err(format!("\"{other}\" is not understood; known are 0 and 1")),
    }
}

/// `read,write,trim`: one value is for both; an empty one leaves what there is.
pub fn pair<T: Clone>(text: &str, usual: [T; 2], read: impl Fn(&str) -> Read<T>) -> Read<[T; 2]> {
    let parts: Vec<&str> = text.split(',').map(str::trim).collect();
    let [first, second] = usual;
    match parts.as_slice() {
        [both] => read(both).map(|value| [value.clone(), value]),
        [reads, writes] | [reads, writes, _] => {
            let or = |text: &str, usual: T| if text.is_empty() { Ok(usual) } else { read(text) };
            Ok([or(reads, first)?, or(writes, second)?])
        }
        _ => Err(format!("\"{text}\" has more than three parts")),
    }
}

/// Blocks of one length.
pub fn block(text: &str) -> Read<Vec<BlockLength>> {
    let bytes = size(text)?;
    whole(bytes, text)?;
    Ok(vec![BlockLength { bytes, to_bytes: bytes, percent: 100 }])
}

/// `4k-16k`.
pub fn block_range(text: &str) -> Read<Vec<BlockLength>> {
    let (from, to) = text.split_once(['-', '~']).ok_or_else(|| format!("\"{text}\" is not a range as 4k-16k"))?;
    let (bytes, to_bytes) = (size(from)?, size(to)?);
    whole(bytes, text)?;
    if to_bytes < bytes {
        return Err(format!("\"{text}\" ends before it begins"));
    }
    Ok(vec![BlockLength { bytes, to_bytes, percent: 100 }])
}

/// `4k/60:64k/40`; shares left out are equal parts of the rest.
pub fn block_split(text: &str) -> Read<Vec<BlockLength>> {
    let mut blocks = Vec::new();
    for part in text.split(':') {
        let (length, share) = part.split_once('/').unwrap_or((part, ""));
        let bytes = size(length)?;
        whole(bytes, text)?;
        let share = if share.trim().is_empty() { None } else { Some(percent(share)?) };
        blocks.push((bytes, share));
    }
    let given: u32 = blocks.iter().filter_map(|(_, share)| *share).map(u32::from).sum();
    let open = blocks.iter().filter(|(_, share)| share.is_none()).count() as u32;
    if given > 100 || (open == 0 && given != 100) {
        return Err(format!("the shares of \"{text}\" add up to {given}, not to 100"));
    }
    let rest = ((100 - given) / open.max(1)) as u8;
    Ok(blocks
        .into_iter()
        .map(|(bytes, share)| BlockLength { bytes, to_bytes: bytes, percent: share.unwrap_or(rest) })
        .collect())
}

fn whole(bytes: u64, text: &str) -> Read<()> {
    if bytes == 0 || bytes > 1 << 30 {
        return Err(format!("\"{text}\": legal are blocks of 1 to 1g"));
    }
    Ok(())
}

/// A `random_distribution`: for reads and for writes.
pub fn law(text: &str) -> Read<[Law; 2]> {
    let (name, rest) = text.split_once(':').unwrap_or((text, ""));
    let both = |law: Law| Ok([law.clone(), law]);
    let number = |usual: f64| match rest {
        "" => Ok(usual),
        rest if rest.contains(':') => Err(format!("\"{text}\": a centre is not understood")),
        rest => rest.parse::<f64>().map_err(|_| format!("\"{rest}\" is not a number")),
    };
    match name {
        "random" if rest.is_empty() => both(Law::Uniform),
        "zipf" => match number(1.1)? {
            theta if theta > 0.0 && theta.is_finite() && theta != 1.0 => both(Law::Zipf(theta)),
            theta => Err(format!("zipf:{theta}: legal are numbers above 0 but 1")),
        },
        "pareto" => match number(0.2)? {
            share if share > 0.0 && share < 1.0 => both(Law::Pareto(share)),
            share => Err(format!("pareto:{share}: legal are numbers between 0 and 1")),
        },
        "normal" | "gauss" => match number(0.0)? {
            deviation if (0.0..100.0).contains(&deviation) => both(Law::Normal(deviation)),
            deviation => Err(format!("normal:{deviation}: legal are percentages from 0 to below 100")),
        },
        "zoned" => pair(rest, [Law::Uniform, Law::Uniform], |part| zones(part, percent).map(Law::Zoned)),
        "zoned_abs" => pair(rest, [Law::Uniform, Law::Uniform], |part| zones(part, size).map(Law::ZonedBytes)),
        "sequence" => {
            let list = rest.split(',').map(count).collect::<Read<Vec<u64>>>()?;
            both(Law::Listed(list))
        }
        _ => Err(format!(
            "\"{name}\" is not understood; known are random, zipf:THETA, pareto:SHARE, normal:PERCENT, zoned:A/B:..., zoned_abs:A/SIZE:..."
        )),
    }
}

/// `50/5:30/15:20/80`, or the last part left open: the rest.
fn zones<T: Copy + Into<u64> + TryFrom<u64>>(text: &str, read: impl Fn(&str) -> Read<T>) -> Read<Vec<(u8, T)>> {
    let mut zones: Vec<(u8, Option<T>)> = Vec::new();
    for part in text.split(':') {
        let (share, of) = part.split_once('/').unwrap_or((part, ""));
        let of = if of.trim().is_empty() { None } else { Some(read(of)?) };
        zones.push((percent(share)?, of));
    }
    let shares: u32 = zones.iter().map(|(share, _)| u32::from(*share)).sum();
    let given: u64 = zones.iter().filter_map(|(_, of)| *of).map(Into::into).sum();
    let open = zones.iter().filter(|(_, of)| of.is_none()).count() as u64;
    if shares != 100 {
        return Err(format!("the shares of accesses in \"{text}\" add up to {shares}, not to 100"));
    }
    let rest = || 100u64.checked_sub(given).map(|left| left / open.max(1)).and_then(|part| T::try_from(part).ok());
    let of = |of: Option<T>| of.or_else(rest).ok_or_else(|| format!("the zones of \"{text}\" are more than all"));
    zones.into_iter().map(|(share, zone)| Ok((share, of(zone)?))).collect()
}

/// What stands for `$pagesize`, `$mb_memory`, `$ncpus` and `${NAME}` of the environment.
pub fn expanded(text: &str) -> Read<String> {
    let mut text = text.to_owned();
    while let Some(at) = text.find("${") {
        let end =
            text[at..].find('}').map(|end| at + end).ok_or_else(|| format!("\"{text}\" has no }} for its ${{"))?;
        let name = text[at + 2..end].to_owned();
        let value = std::env::var(&name).map_err(|_| format!("there is no {name} in the environment"))?;
        if value.contains("${") {
            return Err(format!("{name} of the environment names another of it"));
        }
        text.replace_range(at..=end, &value);
    }
    if text.contains('$') {
        let memory = rustix::system::sysinfo();
        let megabytes = (memory.totalram as u64).saturating_mul(u64::from(memory.mem_unit)) >> 20;
        let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let words = [
            ("$pagesize", rustix::param::page_size().to_string()),
            ("$mb_memory", megabytes.to_string()),
            ("$ncpus", cpus.to_string()),
        ];
        text = words.iter().fold(text, |text, (word, value)| text.replace(word, value));
    }
    Ok(text)
}
