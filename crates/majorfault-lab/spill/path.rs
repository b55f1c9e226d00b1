//! A path that is put together, with a zero at its end.

use crate::settings;

pub struct Path {
    bytes: [u8; 320],
    length: usize,
}

impl Path {
    /// One that begins as the directory of the files.
    pub fn in_directory() -> Path {
        let mut path = Path { bytes: [0; 320], length: 0 };
        let text = (0..).map(settings::byte).take_while(|byte| *byte != 0);
        text.for_each(|byte| path.add_text(&[byte]));
        path
    }

    pub fn address(&self) -> u64 {
        self.bytes.as_ptr() as u64
    }

    pub fn add_text(&mut self, text: &[u8]) {
        for byte in text {
            // The last one stays zero.
            if self.length + 1 < self.bytes.len() {
                self.bytes[self.length] = *byte;
                self.length += 1;
            }
        }
    }

    pub fn add_number(&mut self, number: u32) {
        if number >= 10 {
            self.add_number(number / 10);
        }
        self.add_text(&[b'0' + (number % 10) as u8]);
    }
}
