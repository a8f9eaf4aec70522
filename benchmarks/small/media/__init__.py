"""Images, sound, boxes, points and bytes."""
