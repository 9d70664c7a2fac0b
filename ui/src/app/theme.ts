import { createTheme } from "@mantine/core";

/** Mantine's components in our sizes; their colours come from design/tokens.css. */
export const theme = createTheme({
  cursorType: "pointer",
  defaultRadius: "default",
  components: {
    Tooltip: {
      defaultProps: { openDelay: 300, events: { hover: true, focus: true, touch: true } },
    },
    Modal: { defaultProps: { transitionProps: { duration: 0 } } },
    Menu: { defaultProps: { transitionProps: { duration: 0 } } },
    Popover: { defaultProps: { transitionProps: { duration: 0 } } },
  },
});
