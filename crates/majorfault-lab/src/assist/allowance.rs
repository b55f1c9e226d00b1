//! What may be read ahead now, where the user set a rate: the allowance grows with time, and reads use it up.

use std::time::Duration;

/// Bytes that may be read. Saves up one second's bytes at most; a read that took too much leaves a debt, to be paid back first.
#[derive(Clone, Copy, Debug, Default)]
pub struct Allowance {
    rate: Option<u64>,
    left: f64,
}

impl Allowance {
    /// One second's bytes at `rate` bytes each second; without a rate it is unlimited.
    pub fn of(rate: Option<u64>) -> Allowance {
        Allowance { rate, left: rate.unwrap_or(0) as f64 }
    }

    /// Adds the bytes of this much time.
    pub fn grow(&mut self, passed: Duration) {
        if let Some(rate) = self.rate {
            self.left = (self.left + rate as f64 * passed.as_secs_f64()).min(rate as f64);
        }
    }

    /// Takes away the bytes that were read.
    pub fn spend(&mut self, bytes: u64) {
        if self.rate.is_some() {
            self.left -= bytes as f64;
        }
    }

    /// Bytes that may be read now.
    pub fn left(&self) -> u64 {
        self.rate.map_or(u64::MAX, |_| self.left as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_rate_there_is_no_end_to_it() {
        let mut allowance = Allowance::of(None);

        allowance.spend(u64::MAX);
        allowance.grow(Duration::from_secs(1));

        assert_eq!(allowance.left(), u64::MAX);
    }

    #[test]
    fn it_begins_with_a_second_and_saves_no_more_than_that() {
        let mut allowance = Allowance::of(Some(1000));
        assert_eq!(allowance.left(), 1000);

        allowance.grow(Duration::from_secs(100));
        assert_eq!(allowance.left(), 1000);
    }

    #[test]
    fn what_is_spent_grows_back_with_time() {
        let mut allowance = Allowance::of(Some(1000));

        allowance.spend(900);
        assert_eq!(allowance.left(), 100);
        allowance.grow(Duration::from_millis(250));
        assert_eq!(allowance.left(), 350);
    }

    #[test]
    fn what_was_too_much_is_owed() {
        let mut allowance = Allowance::of(Some(1000));

        allowance.spend(1600);
        allowance.grow(Duration::from_millis(600));
        assert_eq!(allowance.left(), 0);
        allowance.grow(Duration::from_millis(100));
        assert_eq!(allowance.left(), 100);
    }

    #[test]
    fn pauses_of_which_each_is_worth_less_than_a_byte_add_up() {
        let mut allowance = Allowance::of(Some(1000));
        allowance.spend(1000);

        (0..1000).for_each(|_| allowance.grow(Duration::from_micros(500)));

        assert!((499..=500).contains(&allowance.left()), "{}", allowance.left());
    }
}
