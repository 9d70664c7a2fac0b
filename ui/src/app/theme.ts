import { createTheme } from "@mantine/core";

/** Mantine's components in our sizes; their colours come from design/tokens.css. */
export const theme = createTheme({
  cursorType: "pointer",
  defaultRadius: "default",
  components: {
    Tooltip: {
      defaultProps: { openDelay: 300, events: { hover: true, focus: true, touch: true } },
    },
    // Mantine locks scrolling by a style made at run time; base.css does it by a rule.
    Modal: {
      defaultProps: {
        lockScroll: false,
        transitionProps: { duration: 0 },
        closeButtonProps: { "aria-label": "Close" },
      },
    },
    Menu: { defaultProps: { transitionProps: { duration: 0 } } },
    Popover: { defaultProps: { transitionProps: { duration: 0 } } },
  },
});
